"""Finds what stands twice in a list that may hold a thing once."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def first_repeated(items: Iterable[T]) -> T | None:
    """The first item that stood before, or None. The items are not None."""
    seen: set[T] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None
