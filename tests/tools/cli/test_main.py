"""The command line as a whole: help, imports, unreachable services."""

import os
import subprocess
import sys

import pytest

from nnhal.version import describe_version
from tests.tools.cli.command import DIGITS, PROGRAM, UNREACHABLE, assert_fails, invoke


def test_help_lists_every_command_and_imports_no_large_packages() -> None:
    code = """
import sys; from nnhal_tools.cli import app
print(sorted({'numpy', 'grpc', 'rich', 'PIL'} & set(sys.modules)))"""
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).strip() == "[]"
    shown = invoke().output
    for command in ("serve", "info", "run", "demo"):
        assert command in shown
        assert invoke(command, "--help").exit_code == 0


def test_version_and_short_help_are_options() -> None:
    assert invoke("--version").output == f"nnhal {describe_version()}\n"
    assert invoke("-h").output == invoke("--help").output
    assert "Usage: nnhal cache list" in invoke("cache", "list", "-h").output


@pytest.mark.parametrize("command", [[], ["run"], ["cache", "list"]])
def test_help_shows_no_types_of_flags(command: list[str]) -> None:
    shown = invoke(*command, "--help").output
    assert "--help" in shown
    assert "bool" not in shown.lower()


def test_shell_completes_commands() -> None:
    request = {"_NNHAL_COMPLETE": "complete_bash", "COMP_WORDS": "nnhal co", "COMP_CWORD": "1"}
    completed = subprocess.check_output(PROGRAM, env={**os.environ, **request}, text=True)
    assert completed.split() == ["compare", "conformance"]


@pytest.mark.parametrize("command", [["info"], ["run", DIGITS]])
def test_unreachable_service_is_reported(command: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("info", "run"):
        monkeypatch.setattr(f"nnhal_tools.cli.{module}.CONNECT_S", 0.2)
    assert_fails(invoke(*command, "--target", UNREACHABLE), 1, UNREACHABLE, "no response from")


def test_only_serve_imports_the_service() -> None:
    code = f"""
import sys
from nnhal_tools.cli import app
from typer.testing import CliRunner
from nnhal_tools.cli import info, run
info.CONNECT_S = run.CONNECT_S = 0.2
for arguments in (["info"], ["run", {str(DIGITS)!r}]):
    assert CliRunner().invoke(app, [*arguments, "--target", {UNREACHABLE!r}]).exit_code == 1
assert "nnhal.client" in sys.modules
print(sorted({{"nnhal_service", "nnhal_driver"}} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).strip() == "[]"
