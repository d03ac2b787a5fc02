"""How commands end when something is wrong: one line on stderr and an exit code, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from nnhal.errors import HalError

FAILED = 1
"""Exit code: the service or the device refused, failed, or did not answer."""
MISUSED = 2
"""Exit code: an option, a setting or a file is wrong."""


class CommandError(Exception):
    """A command cannot do what it was asked to; the message is for the user."""

    def __init__(self, message: str, exit_code: int = MISUSED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Turns HalError and CommandError into their line and exit code. Also a decorator for commands."""
    try:
        yield
    except CommandError as error:
        raise _exit(str(error), error.exit_code) from None
    except HalError as error:
        raise _exit(str(error), FAILED) from None


def _exit(message: str, code: int) -> typer.Exit:
    typer.echo("nnhal: " + " ".join(message.split()), err=True)
    return typer.Exit(code)
