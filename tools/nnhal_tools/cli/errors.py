"""Errors of commands: one line on stderr and an exit code, never a traceback."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

FAILED = 1
"""Exit code: the service or the device reported an error, or did not respond."""
MISUSED = 2
"""Exit code: an option, a setting or a file is invalid, or the command does not work on this system."""
NEEDS_RESTART = 3
"""Exit code: the service was reloaded, but a setting has changed that only a restart can change."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""


class CommandError(Exception):
    """A command cannot do its work. The message is for the user."""

    def __init__(self, message: str, exit_code: int = MISUSED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@contextmanager
def as_command_errors(*types: type[Exception], exit_code: int = MISUSED) -> Iterator[None]:
    """Turn errors of some types, whose text is for the user, into errors of the command."""
    try:
        yield
    except types as error:
        raise CommandError(str(error), exit_code) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the operating system, and of a format, into an error of the command: it cannot write a file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write {path}: {error_text(error)}") from error


def write_file(path: Path | None, write: Callable[..., object], *arguments: object) -> None:
    """Have a function write a file, if there is a path; see `writing`."""
    if path:
        with writing(path):
            write(path, *arguments)


def error_text(error: BaseException) -> str:
    """Return the text of an exception without the path, which the message around it names."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def print_error(message: str, exit_code: int = FAILED) -> int:
    """Print a message for the user as one line, and return the exit code."""
    typer.echo("nnhal: " + " ".join(message.split()), err=True)
    return exit_code
