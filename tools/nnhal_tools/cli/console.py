"""Terminal output of the commands: tables, progress, and numbers and names as short texts."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import Progress
    from rich.status import Status
    from rich.table import Column, Table

_BORDER_WIDTH = 3
"""Columns that a table adds to each of its columns: a line and a blank on either side."""
_NAME_WIDTH = 32
"""Characters of the name of a model that tables show."""
_PIPE_WIDTH = 10_000
"""Columns of output that is not a terminal, so that nothing is cut off or wrapped."""


def make_console(*, stderr: bool = False) -> "Console":
    """Return a console that prints text unchanged, because names and labels may look like rich's markup.

    Progress is on stderr, so that it is separate from the output of a command.
    """
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_text(console: "Console", text: str) -> None:
    """Print text. A terminal gets lines that end between words, so that names and paths stay whole."""
    if console.is_terminal:
        options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
        text = "\n".join(fill(line, console.width, **options) for line in text.splitlines())  # type: ignore[arg-type]
    console.print(text, soft_wrap=True)


def print_table(console: "Console", table: "Table") -> None:
    """Print a table with text in its cells. Words are never cut off.

    If the words of a row do not fit beside each other, the cells of each row are printed below each other.
    """
    columns = [_ColumnText.of(column) for column in table.columns]
    if not words_fit(console, table):
        console.print(_to_records(columns), crop=False)
        return
    available = _available_width(console, columns)
    if sum(column.longest_line for column in columns) > available:
        for column, width in zip(table.columns, _distribute(available, columns), strict=True):
            column.width = width
    console.print(table)


def words_fit(console: "Console", table: "Table") -> bool:
    """Return whether the words of each row of a table fit beside each other."""
    columns = [_ColumnText.of(column) for column in table.columns]
    return sum(column.longest_word for column in columns) <= _available_width(console, columns)


@dataclass(frozen=True)
class _ColumnText:
    """Text of a column of a table, with the heading first."""

    cells: Sequence[str]
    longest_word: int
    longest_line: int

    @staticmethod
    def of(column: "Column") -> "_ColumnText":
        from rich.cells import cell_len

        cells = [str(cell) for cell in (column.header, *column.cells)]
        words = (cell_len(word) for cell in cells for word in cell.split())
        lines = (cell_len(line) for cell in cells for line in cell.splitlines())
        return _ColumnText(cells, max(words, default=0), max(lines, default=0))


def _available_width(console: "Console", columns: Sequence[_ColumnText]) -> int:
    return console.width - 1 - len(columns) * _BORDER_WIDTH


def _distribute(available: int, columns: Sequence[_ColumnText]) -> list[int]:
    """Return widths that fill the available width, and fit every word. Columns that need little get it first."""
    widths = [column.longest_word for column in columns]
    spare = available - sum(widths)
    by_need = sorted(range(len(widths)), key=lambda i: columns[i].longest_line - columns[i].longest_word)
    for position, i in enumerate(by_need):
        more = min(columns[i].longest_line - widths[i], spare // (len(by_need) - position))
        widths[i] += more
        spare -= more
    return widths


def _to_records(columns: Sequence[_ColumnText]) -> "Table":
    """Return a table of two columns, headings and cells. A blank line separates rows. Empty cells are left out."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for number, row in enumerate(zip(*(column.cells[1:] for column in columns), strict=True)):
        if number:
            grid.add_row()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                grid.add_row(column.cells[0], cell)
    return grid


def show_status(text: str) -> "AbstractContextManager[Status]":
    """Return a status line for the duration of a `with` block. Only a terminal on stderr shows it."""
    return make_console(stderr=True).status(text, spinner="line")


def show_connecting(target: str | None) -> "AbstractContextManager[Status]":
    """Return the status line of a command that connects to a service, or starts one."""
    return show_status(f"connecting to {target}" if target else "starting a service")


def make_progress(console: "Console | None" = None) -> "Progress":
    """Return a bar for steps, with a description and the elapsed time. Only a terminal shows it.

    The console is the one that also prints other lines meanwhile; by default, the bar is on stderr.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = console or make_console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


# ---- Short texts ---------------------------------------------------------------------------------------


def format_bytes(count: float) -> str:
    """Return a size with a unit, for example "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Return a duration of work with a unit, for example "1.5 ms"; "-" for 0, which means unknown."""
    if not seconds:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_age(seconds: float) -> str:
    """Return the age of something, for example "2 h 5 min"."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"


def printable(text: str) -> str:
    """Return a text without control characters: clients choose their names, which must not control the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def display_name(name: str) -> str:
    """Return the name of a model for a table: bounded, and without letters that would reverse the text around them.

    Those are written as numbers. The version, at the end, stays.
    """
    import unicodedata

    is_right_to_left = ("R", "AL", "AN")
    letters = (f"\\u{ord(each):04x}" if unicodedata.bidirectional(each) in is_right_to_left else each for each in name)
    text = printable("".join(letters))
    return text if len(text) <= _NAME_WIDTH else f"{text[: _NAME_WIDTH - 9]}…{text[-8:]}"
