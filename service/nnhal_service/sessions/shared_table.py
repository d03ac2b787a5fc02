"""Memories and files that a client on the same machine shares, by numbers that the client chooses."""

import os
import stat
import threading
from dataclasses import dataclass

from nnhal.errors import HalError, invalid_argument
from nnhal.types import Memory
from nnhal_service.sessions.file_systems import LOCAL, file_system
from nnhal_service.sessions.limits import Limits


@dataclass(frozen=True)
class _File:
    """File of a client. The table owns the descriptor."""

    descriptor: int


class SharedTable:
    """The memories and files that one session shares. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[int, Memory | _File] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add_memory(self, number: int, memory: Memory) -> None:
        """Add a memory.

        Raises:
            HalError: INVALID_ARGUMENT: the number is in use. RESOURCE_EXHAUSTED_TRANSIENT: limit shared.
        """
        self._add(number, memory)

    def add_file(self, number: int, descriptor: int) -> None:
        """Add a duplicate of the descriptor of a regular file of a local file system.

        Raises:
            HalError: INVALID_ARGUMENT: the file is not regular, its reads may block, or the number is in use.
                RESOURCE_EXHAUSTED_TRANSIENT: limit shared.
        """
        system = file_system(descriptor)  # first: `fstat` may block as well
        if system not in LOCAL or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            reason = f"number {number} is not a regular file of a local file system; it is of {system or 'another'!r}"
            raise invalid_argument(reason)
        file = _File(os.dup(descriptor))
        try:
            self._add(number, file)
        except HalError:
            os.close(file.descriptor)
            raise

    def _add(self, number: int, entry: Memory | _File) -> None:
        with self._lock:
            if self._closed:
                raise invalid_argument("the session has ended")
            if number in self._entries:
                raise invalid_argument(f"number {number} is already in use")
            self._limits.require("shared", len(self._entries) + 1, "the session would have")
            self._entries[number] = entry

    def memory(self, number: int) -> Memory:
        """Return a memory.

        Raises:
            HalError: INVALID_ARGUMENT: the session shares no memory with this number.
        """
        entry = self._entries.get(number)
        if not isinstance(entry, Memory):
            raise invalid_argument(f"the session shares no memory with number {number}")
        return entry

    def descriptor(self, number: int) -> int:
        """Return a duplicate of the descriptor of a file; the caller closes it.

        Raises:
            HalError: INVALID_ARGUMENT: the session shares no file with this number.
        """
        with self._lock:  # otherwise `drop` could close the descriptor, and another file could get its number
            entry = self._entries.get(number)
            if not isinstance(entry, _File):
                raise invalid_argument(f"the session shares no file with number {number}")
            return os.dup(entry.descriptor)

    def drop(self, number: int) -> None:
        """Remove a memory or file. Requests that use it keep it. Unknown numbers are ignored."""
        with self._lock:
            entry = self._entries.pop(number, None)
        if isinstance(entry, _File):
            os.close(entry.descriptor)

    def close(self) -> None:
        """Remove everything, and accept no more."""
        with self._lock:
            self._closed = True
            numbers = list(self._entries)
        for number in numbers:
            self.drop(number)
