"""The exception of the import, and how it comes to name its place."""

from collections.abc import Iterator
from contextlib import contextmanager


class TfliteError(ValueError):
    """A file that cannot be imported; the message names the file, the operator by index and name, and why."""


@contextmanager
def place(name: str) -> Iterator[None]:
    """Puts `name` in front of the message of a `TfliteError` from within."""
    try:
        yield
    except TfliteError as error:
        raise TfliteError(f"{name}: {error}") from error
