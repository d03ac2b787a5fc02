"""Terminal output: the width of tables, and progress."""

import io
import sys

import pytest
from rich.console import Console
from rich.table import Table

from nnhal_tools.cli.console import (
    display_name,
    make_console,
    make_progress,
    print_table,
    print_text,
    show_status,
    words_fit,
)

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


def terminal(width: int) -> Console:
    """Return a console of a terminal without colors."""
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, markup=False)


def operations() -> Table:
    table = Table("", "operation", "backend")
    table.add_row("0", "DEPTHWISE_CONV_2D and more words", "CpuAcc")
    table.add_row("1", "SOFTMAX", "")
    return table


@pytest.mark.parametrize("width", range(38, 60))
def test_tables_have_whole_words_and_fit(width: int) -> None:
    console = terminal(width)
    with console.capture() as capture:
        print_table(console, operations())
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width and "│" in lines[3]
    assert words_fit(console, operations())
    assert all(word in capture.get() for word in ("DEPTHWISE_CONV_2D", "operation", "backend", "CpuAcc"))


def test_cells_are_below_each_other_where_words_do_not_fit() -> None:
    console = terminal(30)
    assert not words_fit(console, operations())
    with console.capture() as capture:
        print_table(console, operations())
    assert [line.rstrip() for line in capture.get().splitlines()] == [
        "           0",
        "operation  DEPTHWISE_CONV_2D",
        "           and more words",
        "backend    CpuAcc",
        "",
        "           1",
        "operation  SOFTMAX",
    ]


def test_text_wraps_between_words() -> None:
    console = terminal(20)
    with console.capture() as capture:
        print_text(console, "type        CPU\nfirst second third /a/path/that/is/longer/than/the/terminal [1, 2]")
    assert capture.get().splitlines() == [
        "type        CPU",
        "first second third",
        "/a/path/that/is/longer/than/the/terminal",
        "[1, 2]",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("detector/3", "detector/3"),
        ("", ""),
        ("\u65e5\u672c/1", "\u65e5\u672c/1"),
        ("a\nb\x1b[2J\u202e/1", "a\ufffdb\ufffd[2J\ufffd/1"),
        ("\u05d0\u0627/1", "\\u05d0\\u0627/1"),
        (f"{'x' * 300}/123456", f"{'x' * 23}\u2026x/123456"),
    ],
)
def test_names_are_bounded_and_do_not_control_a_terminal(name: str, text: str) -> None:
    assert display_name(name) == text
    assert len(text) <= 32
