"""Message templates: the encoding of a message is cached, and each call fills in only the values.

The message of an execution consists of constant bytes around the bytes of its tensors. For a small model, building
message objects and encoding them costs more than the execution.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from google.protobuf.message import Message

from nnhal.types import AnyArray
from nnhal.v1 import types_pb2

MAX_VALUES_BYTES = 2**18
"""Largest total size of the values in a message that gets a template, in bytes."""
MAX_FIXED_BYTES = 4096
"""Largest size of a cached message without its values, in bytes."""
MAX_ENTRIES = 64
"""Largest number of entries in one cache, so that ever-changing requests do not fill the memory."""

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)


class ValueField(Protocol):
    """Message that holds a value: Memory or ReturnedOutput."""

    inline: bytes


FindValueFields = Callable[[M], Iterable[ValueField]]
"""Finds the messages that hold the values, in the order in which they are encoded."""


class MessageTemplate:
    """Encoded message with gaps for its values.

    Args:
        encoded: the message, with any values.
        spans: start and end of each value; at least one.

    Attributes:
        size: length of the whole message in bytes.
        spans: start and end of each value.
    """

    __slots__ = ("_fixed", "_fixed_spans", "size", "spans")

    def __init__(self, encoded: bytes, spans: Sequence[tuple[int, int]]) -> None:
        self.size = len(encoded)
        self.spans = tuple(spans)
        starts = (0, *(end for _, end in spans))
        ends = (*(start for start, _ in spans), self.size)
        self._fixed_spans = list(zip(starts, ends, strict=True))
        self._fixed = [encoded[start:end] for start, end in self._fixed_spans]

    @staticmethod
    def of(message: M, find_fields: FindValueFields[M]) -> "MessageTemplate | None":
        """Return the template of a message.

        Filled with values of the same lengths, it is what `SerializeToString` returns for them.

        Returns:
            the template, or None if a value is empty or if the values are too large for a template to matter.
        """
        sizes = [len(field.inline) for field in find_fields(message)]
        if 0 in sizes or not 0 < sum(sizes) <= MAX_VALUES_BYTES:
            return None
        ones, zeros = (np.frombuffer(_encode_with(message, find_fields, byte), np.uint8) for byte in (b"\xff", b"\0"))
        edges = np.flatnonzero(np.diff(ones != zeros, prepend=False, append=False)).tolist()
        return MessageTemplate(zeros.tobytes(), list(zip(edges[::2], edges[1::2], strict=True)))

    def fill(self, values: Sequence[bytes | AnyArray]) -> bytes:
        """Return the encoded message with other values of the same lengths. Arrays must be C-contiguous."""
        pieces: list[Any] = [b""] * (2 * len(values) + 1)
        pieces[::2], pieces[1::2] = self._fixed, values
        return b"".join(pieces)

    def matches(self, encoded: bytes) -> bool:
        """Return whether an encoded message differs from this one in its values at most; they lie at `spans`."""
        if len(encoded) != self.size:
            return False
        return [encoded[start:end] for start, end in self._fixed_spans] == self._fixed


def inline_memories(request: types_pb2.Request) -> list[types_pb2.Memory]:
    """Return the memories of a request whose bytes are in the request."""
    return [pool.pool for pool in request.pools if pool.pool.WhichOneof("memory") == "inline"]


def put_bounded(table: dict[K, V], key: K, value: V) -> None:
    """Add an entry to a cache, which is cleared first if it is full."""
    if len(table) >= MAX_ENTRIES:
        table.clear()
    table[key] = value


def _encode_with(message: M, find_fields: FindValueFields[M], byte: bytes) -> bytes:
    """Return the encoded message with every byte of its values replaced.

    The copy avoids changing the message, and a message keeps the memory of its old values.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    for field in find_fields(copy):
        field.inline = byte * len(field.inline)
    return copy.SerializeToString()
