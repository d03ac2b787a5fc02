"""Terminal output of the commands."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import Progress
    from rich.status import Status

_PIPE_WIDTH = 10_000
"""Columns of output that is not a terminal, so that nothing is cut off or wrapped."""


def make_console() -> "Console":
    """Return a console on stdout that prints text unchanged, because names and labels may look like rich's markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show_status(text: str) -> "AbstractContextManager[Status]":
    """Return a status line for the duration of a `with` block. Only a terminal on stderr shows it."""
    return _progress_console().status(text, spinner="line")


def make_progress(console: "Console | None" = None) -> "Progress":
    """Return a bar for steps, with a description and the elapsed time.

    Args:
        console: the console that also prints other lines meanwhile. By default, the bar is on stderr. Only a terminal
            shows the bar.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = console or _progress_console()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _progress_console() -> "Console":
    """Return a console on stderr, so that progress is separate from the output of a command."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)
