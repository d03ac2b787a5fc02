"""Regions of memory that hold values."""

from typing import Protocol

from nnhal.types import Bytes


class MappedMemory(Protocol):
    """Memory whose bytes this process can read."""

    @property
    def contents(self) -> Bytes:
        """All of its bytes, not copied."""
        ...
