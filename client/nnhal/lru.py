"""Dictionary of a limited size that evicts the least recently used entry."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruDict(OrderedDict[K, V]):
    """Dictionary with at most `capacity` entries. Not thread-safe.

    `get`, `in` and `[key]` are plain dictionary lookups and do not count as a use, so they cost nothing extra on a hot
    path. Without `use`, entries are evicted in the order of their insertion.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def use(self, key: K) -> V:
        """Return the value of a key, and mark the entry as the most recently used.

        Raises:
            KeyError: the key does not exist.
        """
        self.move_to_end(key)
        return self[key]

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Set the value of a key as the most recently used entry. Return the evicted entry, if there is one."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self.capacity else None
