"""Terminal output: the width of tables, and progress."""

import sys

import pytest
from rich.table import Table

from nnhal_tools.cli.console import make_console, make_progress, show_status

LONG = "TENSOR_QUANT8_ASYMM_SIGNED " * 20


def test_piped_tables_are_as_wide_as_their_contents(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("name", LONG)
    table.add_row("value", LONG)
    make_console().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and sum(LONG.strip() in line for line in lines) == 2
    assert max(map(len, lines)) < len(LONG) + 20


def test_columns_of_the_environment_limit_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    make_console().print(LONG)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def show() -> str:
        with show_status("starting a service"):
            pass
        with make_progress() as progress:
            progress.add_task("preparing", total=2)
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert show() == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = show()
    assert "starting a service" in shown and "preparing" in shown and "0/2" in shown
