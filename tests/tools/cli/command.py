"""Helpers that run commands and check their results."""

import re
import sys

from rich.table import Table
from typer.testing import CliRunner, Result

from nnhal_tools.cli import app
from nnhal_tools.cli.console import make_console
from nnhal_tools.demo import digits

PROGRAM = [sys.executable, "-P", "-m", "nnhal_tools.cli"]
DIGITS = digits.MODEL
UNREACHABLE = "127.0.0.1:1"
"""An address that no service listens on."""


def invoke(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, [str(argument) for argument in arguments])


def assert_fails(result: Result, code: int, *words: str) -> None:
    """Check that a command failed with one line on stderr that contains the words, and no other output."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("nnhal: ") and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def rendered(table: Table) -> list[list[str]]:
    """Return the cells of each row of a table, with the heading first."""
    console = make_console()
    with console.capture() as capture:
        console.print(table)
    rows = [re.split("[│┃]", line)[1:-1] for line in capture.get().splitlines()]
    return [[cell.strip() for cell in row] for row in rows if row]
