"""The exception of the TFLite import."""

from collections.abc import Iterator
from contextlib import contextmanager


class TfliteError(ValueError):
    """A file that cannot be imported. The message names the file, the operator by index and name, and the reason."""


@contextmanager
def prefix_errors(name: str) -> Iterator[None]:
    """Prefix the message of a `TfliteError` from the `with` block with a name, unless the name is ""."""
    try:
        yield
    except TfliteError as error:
        raise TfliteError(f"{name}: {error}" if name else str(error)) from error
