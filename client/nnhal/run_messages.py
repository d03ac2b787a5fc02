"""Encoding and decoding of RunRequest and RunResponse without copies of their values.

Protobuf's own parser copies a value twice: into its message, and out of it. Messages with fields that are not known
here, or in an unusual encoding, are left to it.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from nnhal.errors import invalid_argument
from nnhal.types import OMITTED, AnyArray, Bytes
from nnhal.v1 import burst_pb2, prepared_model_pb2

_LENGTH_DELIMITED, _VARINT = 2, 0
_SESSION = prepared_model_pb2.RunRequest.SESSION_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_DEFINITION = prepared_model_pb2.RunRequest.DEFINITION_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_VALUE = prepared_model_pb2.RunRequest.VALUES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_DEADLINE = prepared_model_pb2.RunRequest.DEADLINE_NS_FIELD_NUMBER << 3 | _VARINT
_OUTPUT = prepared_model_pb2.RunResponse.VALUES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_RUN = burst_pb2.BurstStreamRequest.RUN_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_RAN = burst_pb2.BurstStreamResponse.RAN_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_MAX_VARINT_BITS = 63
_ALL_BITS = 2**64 - 1

Span = tuple[int, int]
"""First byte of a value in its message, and the end of the value."""


class RunCall(NamedTuple):
    """The fields of a RunRequest.

    Attributes:
        values: bytes of the values: views of the message, which are read-only.
        deadline_ns: nanoseconds from now; -1: none.
    """

    session: bytes
    definition: bytes
    values: list[Bytes]
    deadline_ns: int


class RunRequestEncoder:
    """Encodes the runs of one definition."""

    def __init__(self, session: bytes, definition: bytes, sizes: Iterable[int]) -> None:
        self._fixed = prepared_model_pb2.RunRequest(session=session, definition=definition).SerializeToString()
        self._heads: list[bytes] = []
        self._size = len(self._fixed)
        for size in sizes:
            self._heads.append(field_head(_VALUE, size))
            self._size += len(self._heads[-1]) + size

    def encode(self, values: Iterable[AnyArray], deadline_ns: int = OMITTED, *, stream: bool = False) -> bytes:
        """Return a message with C-contiguous values of the sizes that were given; on a stream, as its `run`."""
        parts: list[bytes | memoryview] = [self._fixed]
        for head, value in zip(self._heads, values, strict=True):
            parts += (head, value.data)
        tail = b""
        if deadline_ns != OMITTED:
            tail = prepared_model_pb2.RunRequest(deadline_ns=deadline_ns).SerializeToString()
        parts.append(tail)
        if stream:
            parts.insert(0, field_head(_RUN, self._size + len(tail)))
        return b"".join(parts)


def read_run(encoded: bytes) -> RunCall:
    """Decode a RunRequest.

    Raises:
        HalError: INVALID_ARGUMENT: the bytes are not such a message.
    """
    return _read_run(encoded, 0)


def read_stream_run(encoded: bytes) -> RunCall | None:
    """Decode the run in a BurstStreamRequest; None if it is another call or in an unusual encoding.

    Raises:
        HalError: INVALID_ARGUMENT: the bytes are not such a message.
    """
    if not encoded or encoded[0] != _RUN:
        return None
    fields = scan_fields(encoded, 0)
    return _read_run(encoded, fields[0][1]) if fields is not None and len(fields) == 1 else None


def run_call(message: prepared_model_pb2.RunRequest) -> RunCall:
    """Return the fields of a decoded RunRequest."""
    values = [np.frombuffer(value, np.uint8) for value in message.values]
    deadline_ns = message.deadline_ns if message.HasField("deadline_ns") else OMITTED
    return RunCall(message.session, message.definition, values, deadline_ns)


def encode_values(values: Iterable[Bytes], *, stream: bool = False) -> bytes:
    """Encode a RunResponse with values; on a stream, as the `ran` of its response."""
    parts: list[bytes | memoryview] = []
    total = 0
    for value in values:
        head = field_head(_OUTPUT, value.size)
        total += len(head) + value.size
        parts += (head, value.data)
    if stream:
        parts.insert(0, field_head(_RAN, total))
    return b"".join(parts)


def read_values(encoded: bytes, *, stream: bool = False) -> list[Span] | None:
    """Return where the values in a RunResponse are, or in the `ran` of a stream; None if it has anything else."""
    start = 0
    if stream:
        outer = scan_fields(encoded, 0)
        if outer is None or len(outer) != 1 or outer[0][0] != _RAN:
            return None
        start = outer[0][1]
    fields = scan_fields(encoded, start)
    if fields is None or any(tag != _OUTPUT for tag, _, _ in fields):
        return None
    return [(begin, end) for _, begin, end in fields]


def _read_run(encoded: bytes, start: int) -> RunCall:
    fields = scan_fields(encoded, start)
    if fields is None:
        return _parse_run(encoded[start:])
    session = definition = b""
    deadline_ns = OMITTED
    values: list[Bytes] = []
    everything = np.frombuffer(encoded, np.uint8) if encoded else np.empty(0, np.uint8)
    for tag, begin, end in fields:
        if tag == _VALUE:
            values.append(everything[begin:end])
        elif tag == _SESSION:
            session = encoded[begin:end]
        elif tag == _DEFINITION:
            definition = encoded[begin:end]
        elif tag == _DEADLINE:
            deadline_ns = begin - (begin >> 63 << 64)
        else:
            return _parse_run(encoded[start:])
    return RunCall(session, definition, values, deadline_ns)


def _parse_run(encoded: bytes) -> RunCall:
    try:
        return run_call(prepared_model_pb2.RunRequest.FromString(encoded))
    except DecodeError as error:
        raise invalid_argument(f"the request cannot be decoded: {error}") from None


def scan_fields(encoded: bytes, position: int = 0) -> list[tuple[int, int, int]] | None:
    """Return tag, first byte and end of each field; tag, value and 0 of a varint. None for anything unusual."""
    fields = []
    size = len(encoded)
    try:
        while position < size:
            tag = encoded[position]
            position += 1
            number = shift = 0
            while (byte := encoded[position]) > 127:
                number |= (byte & 127) << shift
                shift += 7
                position += 1
                if shift > _MAX_VARINT_BITS:
                    return None
            number |= byte << shift
            position += 1
            if tag & 7 == _LENGTH_DELIMITED:
                fields.append((tag, position, position + number))
                position += number
            elif tag & 7 == _VARINT:
                fields.append((tag, number & _ALL_BITS, 0))
            else:
                return None
            if tag > 127:  # a field number above 15
                return None
    except IndexError:
        return None
    return fields if position == size else None


@lru_cache(1024)
def field_head(tag: int, size: int) -> bytes:
    """Return the bytes before a value of a given size. Most values have the size of an earlier one."""
    head = bytearray([tag])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head)
