"""Memory for values that an import makes: a file of a few bytes may declare a tensor of gigabytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Reserve = Callable[[int], object]
"""Reserves bytes, until its result is freed."""

_reserve: ContextVar[Reserve | None] = ContextVar("reserve", default=None)


@contextmanager
def reserving(reserve: Reserve) -> Iterator[None]:
    """Reserve the memory of the values that imports in the body make, until its end.

    Imports raise what `reserve` raises.
    """
    reservations: list[object] = []
    token = _reserve.set(lambda size: reservations.append(reserve(size)))
    try:
        yield
    finally:
        _reserve.reset(token)


def reserve(size: int) -> None:
    """Reserve bytes before they are allocated. Raises what the function of `reserving` raises."""
    if (function := _reserve.get()) is not None:
        function(size)
