"""Protocol of the data socket: packets with a fixed header and a body. See docs/same-machine.md.

The service answers every request, in order. All numbers are little-endian.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from nnhal.types import OutputShape

VERSION = 1
MAX_BYTES = 64 * 1024
"""Largest size of a packet in bytes."""
NONE = -1
"""Value of a header field that is not used."""

_HEADER = struct.Struct("<HBBIqq")
_HELLO = struct.Struct("<16s16s")
_DEFINITION = struct.Struct("<16sIqq")
_OUTPUT = struct.Struct("<BBHIq")
_HANDLE = struct.Struct("<16s")
_SPANS = struct.Struct("<I")
_ARGUMENT_BYTES, _DIMENSION_BYTES = 48, 5
"""Most bytes of an argument in a Request message, with its memory and without its dimensions; and of a dimension."""

MEASURE = 1
"""Flag of RUN: fill the timing."""
PROFILE = 2
"""Flag of RUN: measure spans. A service that does not know it ignores it."""
TRACE = 4
"""Flag of RUN: the body is the trace context of the execution. A service that does not know it ignores it."""
FILE = 1
"""Flag of SHARE: the descriptor is a file; without the flag it is memory."""
SUFFICIENT = 1
"""Flag of RESULT: every region was large enough."""
SPANS = 2
"""Flag of RESULT: the body begins with an ExecutionResult message that has the spans, after its size (4 bytes)."""
SPANS_IN_MEMORY = 4
"""Flag of RESULT: likewise, but the body begins with the handle of a Memory object that has this message."""


class PacketKind(IntEnum):
    """Kinds of packets. HELLO to RUN are requests, the others are answers."""

    HELLO = 1
    SHARE = 2
    DROP = 3
    DEFINE = 4
    FORGET = 5
    RUN = 6
    DONE = 64
    RESULT = 65
    ERROR = 66


class ProtocolError(ValueError):
    """Bytes that are not a valid packet of this version."""


class Packet(NamedTuple):
    """Packet of the data socket. The meaning of `number`, `first` and `second` depends on the kind."""

    kind: int
    number: int = 0
    flags: int = 0
    first: int = NONE
    second: int = NONE
    body: bytes = b""

    def pack(self) -> bytes:
        """Return the encoded packet."""
        head = _HEADER.pack(VERSION, self.kind, self.flags, self.number, self.first, self.second)
        return head + self.body

    @staticmethod
    def unpack(packet: bytes) -> "Packet":
        """Decode a packet.

        Raises:
            ProtocolError: it is too short or of another version.
        """
        if len(packet) < _HEADER.size:
            raise ProtocolError(f"a packet has {len(packet)} bytes; expected at least {_HEADER.size}")
        version, kind, flags, number, first, second = _HEADER.unpack_from(packet)
        if version != VERSION:
            raise ProtocolError(f"unknown version {version} of the data socket; expected {VERSION}")
        return Packet(kind, number, flags, first, second, packet[_HEADER.size :])


def pack_hello(session: bytes, secret: bytes) -> bytes:
    """Return the body of HELLO."""
    return _HELLO.pack(session, secret)


def unpack_hello(body: bytes) -> tuple[bytes, bytes]:
    """Decode the body of HELLO and return the session and the secret.

    Raises:
        ProtocolError: the body has another length.
    """
    if len(body) != _HELLO.size:
        raise ProtocolError(f"the body of a HELLO has {len(body)} bytes; expected {_HELLO.size}")
    session, secret = _HELLO.unpack(body)
    return session, secret


@dataclass(frozen=True, slots=True)
class Definition:
    """Body of DEFINE: a request to run later.

    Attributes:
        handle: handle of a prepared model or a burst.
        area: number of the memory that takes returned outputs.
        offset, length: the usable part of that memory; length 0 means none.
        request: an encoded Request message.
    """

    handle: bytes
    area: int
    offset: int
    length: int
    request: bytes

    def pack(self) -> bytes:
        """Return the encoded body."""
        return _DEFINITION.pack(self.handle, self.area, self.offset, self.length) + self.request

    @staticmethod
    def unpack(body: bytes) -> "Definition":
        """Decode the body of DEFINE.

        Raises:
            ProtocolError: it is too short.
        """
        if len(body) < _DEFINITION.size:
            raise ProtocolError(f"the body of a DEFINE has {len(body)} bytes; expected at least {_DEFINITION.size}")
        handle, area, offset, length = _DEFINITION.unpack_from(body)
        return Definition(handle, area, offset, length, body[_DEFINITION.size :])


class OutputLocation(IntEnum):
    """Location of the bytes of an output."""

    REGION = 0  # the region that the request names
    AREA = 1  # the area for returned outputs
    MEMORY = 2  # a new Memory object of the session


class OutputRecord(NamedTuple):
    """Output in a RESULT.

    Attributes:
        shape: its shape, and whether its region was large enough.
        location: an OutputLocation.
        offset: offset in the area, in bytes.
        memory: handle of the Memory object.
    """

    shape: OutputShape
    location: int = OutputLocation.REGION
    offset: int = 0
    memory: bytes = b""


def pack_outputs(outputs: Sequence[OutputRecord]) -> bytes:
    """Return the body of RESULT."""
    parts = []
    for shape, location, offset, memory in outputs:
        dimensions = shape.dimensions
        rank = len(dimensions)
        parts.append(_OUTPUT.pack(location, shape.is_sufficient, rank, 0, offset))
        parts.append(struct.pack(f"<{rank}i", *dimensions))
        parts.append(memory)
    return b"".join(parts)


def unpack_outputs(body: bytes, count: int) -> tuple[OutputRecord, ...]:
    """Decode the body of RESULT.

    Raises:
        ProtocolError: it is too short.
    """
    outputs, position = [], 0
    try:
        for _ in range(count):
            location, sufficient, rank, _, offset = _OUTPUT.unpack_from(body, position)
            position += _OUTPUT.size
            dimensions = struct.unpack_from(f"<{rank}i", body, position)
            position += 4 * rank
            memory = b""
            if location == OutputLocation.MEMORY:
                (memory,) = _HANDLE.unpack_from(body, position)
                position += _HANDLE.size
            outputs.append(OutputRecord(OutputShape(dimensions, bool(sufficient)), location, offset, memory))
    except struct.error as error:
        raise ProtocolError(f"a RESULT of {len(body)} bytes: {error}") from None
    return tuple(outputs)


def fits_packets(arguments: int, dimensions: int) -> bool:
    """Return whether all packets of a model are small enough.

    Args:
        arguments: number of its inputs and outputs.
        dimensions: number of all their dimensions.
    """
    size = arguments * _ARGUMENT_BYTES + dimensions * _DIMENSION_BYTES  # a DEFINE; records of a RESULT are smaller
    return _HEADER.size + _DEFINITION.size + size <= MAX_BYTES


def result_size(shapes: Sequence[OutputShape]) -> int:
    """Return the largest size of a RESULT without spans, by the shapes of its outputs."""
    records = sum(_OUTPUT.size + _HANDLE.size + 4 * len(shape.dimensions) for shape in shapes)
    return _HEADER.size + _SPANS.size + _HANDLE.size + records


def packet_size(outputs: int, spans: int) -> int:
    """Return the size of a RESULT with spans, by the sizes of both parts."""
    return _HEADER.size + _SPANS.size + spans + outputs


def prepend_spans(spans: bytes, outputs: bytes) -> bytes:
    """Return the body of a RESULT with spans."""
    return _SPANS.pack(len(spans)) + spans + outputs


def split_spans(body: bytes) -> tuple[bytes, bytes]:
    """Return the spans and the outputs of a RESULT with spans.

    Raises:
        ProtocolError: it is too short.
    """
    size = _SPANS.unpack_from(body)[0] if len(body) >= _SPANS.size else 0
    end = _SPANS.size + size
    if len(body) < end:
        raise ProtocolError(f"a RESULT of {len(body)} bytes; its spans would end at {end}")
    return body[_SPANS.size : end], body[end:]
