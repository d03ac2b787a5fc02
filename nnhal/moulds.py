"""Messages of which only the values differ: what surrounds the values is encoded once.

The message of an execution is some bytes that stay the same around the values of its tensors. For a small model, making
objects of them and bytes of the objects costs more than to run it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from google.protobuf.message import Message

from nnhal.types import AnyArray
from nnhal.v1 import types_pb2

LARGEST_VALUES = 2**18
"""Bytes of all values of a message that has a mould."""
FORM_BYTES = 4096
"""Of the largest message, values aside, whose form is kept."""
FORMS_KEPT = 64
"""In one table, of one model or burst: what differs all the time must not fill the memory with forms."""

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)


class Holder(Protocol):
    """A message with a value: Memory or ReturnedOutput."""

    inline: bytes


Holders = Callable[[M], Iterable[Holder]]
"""Finds the messages with the values, in the order in which they are encoded."""


class Mould:
    """The bytes around the values of a message.

    Args:
        encoded: the message, with any values.
        places: where they begin and end; at least one.

    Attributes:
        size: of the whole message, in bytes.
        places: as given.
    """

    __slots__ = ("_around", "_gaps", "places", "size")

    def __init__(self, encoded: bytes, places: Sequence[tuple[int, int]]) -> None:
        self.size = len(encoded)
        self.places = tuple(places)
        starts = (0, *(end for _, end in places))
        ends = (*(start for start, _ in places), self.size)
        self._gaps = list(zip(starts, ends, strict=True))
        self._around = [encoded[start:end] for start, end in self._gaps]

    @staticmethod
    def of(message: M, holders: Holders[M]) -> "Mould | None":
        """The mould of a message; None where a value is empty, or they are so large that little else matters.

        Whatever values of the same lengths are put into it, it is what `SerializeToString` would give for them.
        """
        sizes = [len(holder.inline) for holder in holders(message)]
        if 0 in sizes or not 0 < sum(sizes) <= LARGEST_VALUES:
            return None
        ones, zeros = (np.frombuffer(_stamped(message, holders, stamp), np.uint8) for stamp in (b"\xff", b"\0"))
        edges = np.flatnonzero(np.diff(ones != zeros, prepend=False, append=False)).tolist()
        return Mould(zeros.tobytes(), list(zip(edges[::2], edges[1::2], strict=True)))

    def fill(self, values: Sequence[bytes | AnyArray]) -> bytes:
        """The message with these values, which have the lengths of the mould; arrays are C-contiguous."""
        pieces: list[Any] = [b""] * (2 * len(values) + 1)
        pieces[::2], pieces[1::2] = self._around, values
        return b"".join(pieces)

    def fits(self, encoded: bytes) -> bool:
        """Whether a message is this one with any values; they then lie at `places`."""
        if len(encoded) != self.size:
            return False
        return [encoded[start:end] for start, end in self._gaps] == self._around


def inline_pools(request: types_pb2.Request) -> list[types_pb2.Memory]:
    """The memories of a request whose bytes it carries."""
    return [pool.pool for pool in request.pools if pool.pool.WhichOneof("memory") == "inline"]


def keep(table: dict[K, V], form: K, value: V) -> None:
    """Notes what belongs to a form; a full table begins anew."""
    if len(table) >= FORMS_KEPT:
        table.clear()
    table[form] = value


def _stamped(message: M, holders: Holders[M], stamp: bytes) -> bytes:
    """The message with values of one byte, over and over. A new one: a message keeps the memory of values it had."""
    stamped = type(message)()
    stamped.CopyFrom(message)
    for holder in holders(stamped):
        holder.inline = stamp * len(holder.inline)
    return stamped.SerializeToString()
