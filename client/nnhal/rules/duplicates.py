"""Search for duplicates in lists whose items must be unique."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def first_repeated(items: Iterable[T]) -> T | None:
    """Return the first item that occurred before, or None. No item may be None."""
    seen: set[T] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None
