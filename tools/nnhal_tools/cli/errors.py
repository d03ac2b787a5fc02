"""Errors of commands: one line on stderr and an exit code, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from nnhal.errors import HalError, LinuxRequiredError
from nnhal_tools.extras import missing_extra, missing_extra_text

FAILED = 1
"""Exit code: the service or the device reported an error, or did not respond."""
MISUSED = 2
"""Exit code: an option, a setting or a file is invalid, or the command does not work on this system."""


class CommandError(Exception):
    """A command cannot do its work. The message is for the user."""

    def __init__(self, message: str, exit_code: int = MISUSED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Turn HalError, CommandError and missing extras into a line on stderr and an exit code. Also a decorator."""
    try:
        yield
    except CommandError as error:
        raise _exit(str(error), error.exit_code) from None
    except LinuxRequiredError as error:
        raise _exit(error.reason, MISUSED) from None
    except HalError as error:
        raise _exit(str(error), FAILED) from None
    except ImportError as error:
        if not (extra := missing_extra(error)):
            raise
        raise _exit(missing_extra_text(extra), MISUSED) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the operating system, and of a format, into an error of the command: it cannot write a file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write {path}: {error_text(error)}") from error


def error_text(error: BaseException) -> str:
    """Return the text of an exception without the path, which the message around it names."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def print_error(message: str) -> None:
    """Print a message for the user as one line."""
    typer.echo("nnhal: " + " ".join(message.split()), err=True)


def _exit(message: str, code: int) -> typer.Exit:
    print_error(message)
    return typer.Exit(code)
