"""Interface of the stores of a share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a store.

    Attributes:
        modified_at: when it was written, in seconds since 1970.
        version: text that changes with its contents, as far as the store tells.
    """

    name: str
    size: int
    modified_at: float
    version: str = ""


class ObjectStore(Protocol):
    """A store of objects by name. Methods may block and raise any Exception. Names have slashes between folders."""

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return some bytes of an object; fewer at its end.

        Raises:
            FileNotFoundError: there is none.
        """

    def create(self, name: str, value: bytes) -> bool:
        """Write an object, unless there is one. Return False if there is. Some stores replace it nevertheless."""

    def replace(self, name: str, value: bytes) -> None:
        """Write an object, in place of one that exists."""

    def touch(self, name: str, value: bytes) -> None:
        """Give an object, whose value is given, the current time."""

    def modified_at(self, name: str) -> float:
        """Return when an object was written, in seconds since 1970.

        Raises:
            FileNotFoundError: there is none.
        """

    def list(self, folder: str) -> Iterator[StoredObject]:
        """Yield all objects in a folder and those below."""

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""


StoreSource = Callable[[], ObjectStore]
"""Returns the store. The first call opens it, which may fail like any use of it."""
