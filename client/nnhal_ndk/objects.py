"""Objects of the program behind opaque handles.

A handle looks like a pointer and is a number that is never used again: a call with a freed or foreign handle is an
error, and never reads memory.
"""

import itertools
from typing import Any, TypeVar

from nnhal_ndk.results import bad_data

T = TypeVar("T")

_FIRST, _STEP = 0x6E6E_0000_0000, 16
"""Handles are aligned as pointers are."""


class ObjectTable:
    """Objects by handle. Thread safe."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._handles = itertools.count(_FIRST, _STEP)

    def add(self, value: object) -> int:
        """Keep an object and return its handle."""
        handle = next(self._handles)
        self._objects[handle] = value
        return handle

    def get(self, handle: int, kind: type[T]) -> T:
        """Return an object.

        Raises:
            NdkError: BAD_DATA: the handle was freed, is unknown, or belongs to another kind of object.
        """
        value = self._objects.get(handle)
        if not isinstance(value, kind):
            raise bad_data(f"{handle:#x} is not a living {kind.__name__}")
        return value

    def remove(self, handle: int, kind: type[T]) -> T:
        """Free a handle and return its object.

        Raises:
            NdkError: BAD_DATA: see `get`.
        """
        value = self.get(handle, kind)
        if self._objects.pop(handle, None) is None:
            raise bad_data(f"{handle:#x} is being freed by another thread")
        return value

    def __len__(self) -> int:
        return len(self._objects)


OBJECTS = ObjectTable()
"""All objects of the process."""
