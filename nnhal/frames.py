"""What travels on the data socket of the same machine: a header of fixed length, then a body. See docs/same-machine.md.

Both ends use it. Every request is answered, in order. The bytes are little-endian; a packet of the socket is a frame.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from nnhal.types import OutputShape

VERSION = 1
MAX_BYTES = 64 * 1024
"""Of one frame."""
ABSENT = -1

_HEADER = struct.Struct("<HBBIqq")
_GREETING = struct.Struct("<16s16s")
_DEFINITION = struct.Struct("<16sIqq")
_OUTPUT = struct.Struct("<BBHIq")
_HANDLE = struct.Struct("<16s")

MEASURE = 1
"""Flag of RUN: fill the timing."""
FILE = 1
"""Flag of SHARE: the descriptor is a file, else memory."""
SUFFICIENT = 1
"""Flag of RESULT: every region was large enough."""


class Kind(IntEnum):
    """What a frame is. HELLO to RUN are requests, the others are answers."""

    HELLO = 1
    SHARE = 2
    DROP = 3
    DEFINE = 4
    FORGET = 5
    RUN = 6
    DONE = 64
    RESULT = 65
    ERROR = 66


class Malformed(ValueError):
    """Bytes that are no frame of this version."""


class Frame(NamedTuple):
    """One frame. What `number`, `first` and `second` mean depends on the kind."""

    kind: int
    number: int = 0
    flags: int = 0
    first: int = ABSENT
    second: int = ABSENT
    body: bytes = b""

    def pack(self) -> bytes:
        """The bytes."""
        head = _HEADER.pack(VERSION, self.kind, self.flags, self.number, self.first, self.second)
        return head + self.body

    @staticmethod
    def unpack(packet: bytes) -> "Frame":
        """A frame from its bytes.

        Raises:
            Malformed: they are too few, or of another version.
        """
        if len(packet) < _HEADER.size:
            raise Malformed(f"a frame has at least {_HEADER.size} bytes, not {len(packet)}")
        version, kind, flags, number, first, second = _HEADER.unpack_from(packet)
        if version != VERSION:
            raise Malformed(f"version {version} of the data socket is not known; this is {VERSION}")
        return Frame(kind, number, flags, first, second, packet[_HEADER.size :])


def greeting(session: bytes, secret: bytes) -> bytes:
    """The body of HELLO."""
    return _GREETING.pack(session, secret)


def read_greeting(body: bytes) -> tuple[bytes, bytes]:
    """Session and secret.

    Raises:
        Malformed: the body has another length.
    """
    if len(body) != _GREETING.size:
        raise Malformed(f"a HELLO has {_GREETING.size} bytes, not {len(body)}")
    session, secret = _GREETING.unpack(body)
    return session, secret


@dataclass(frozen=True, slots=True)
class Definition:
    """The body of DEFINE: what is to be executed.

    Attributes:
        handle: of a prepared model or a burst.
        area: number of the memory that takes returned outputs.
        offset, length: the part of it that may be used; length 0: none.
        request: a Request message.
    """

    handle: bytes
    area: int
    offset: int
    length: int
    request: bytes

    def pack(self) -> bytes:
        """The bytes."""
        return _DEFINITION.pack(self.handle, self.area, self.offset, self.length) + self.request

    @staticmethod
    def unpack(body: bytes) -> "Definition":
        """A definition from its bytes.

        Raises:
            Malformed: they are too few.
        """
        if len(body) < _DEFINITION.size:
            raise Malformed(f"a DEFINE has at least {_DEFINITION.size} bytes, not {len(body)}")
        handle, area, offset, length = _DEFINITION.unpack_from(body)
        return Definition(handle, area, offset, length, body[_DEFINITION.size :])


class Place(IntEnum):
    """Where the bytes of an output are."""

    REGION = 0  # where the request says
    AREA = 1  # in the area for returned outputs
    MEMORY = 2  # in a new Memory object of the session


class Output(NamedTuple):
    """An output in a RESULT. `offset`: in the area; `memory`: a handle."""

    shape: OutputShape
    place: int = Place.REGION
    offset: int = 0
    memory: bytes = b""


def pack_outputs(outputs: Sequence[Output]) -> bytes:
    """The body of RESULT."""
    parts = []
    for shape, place, offset, memory in outputs:
        dimensions = shape.dimensions
        rank = len(dimensions)
        parts.append(_OUTPUT.pack(place, shape.is_sufficient, rank, 0, offset))
        parts.append(struct.pack(f"<{rank}i", *dimensions))
        parts.append(memory)
    return b"".join(parts)


def unpack_outputs(body: bytes, count: int) -> tuple[Output, ...]:
    """The outputs of a RESULT.

    Raises:
        Malformed: the body is too short.
    """
    outputs, at = [], 0
    try:
        for _ in range(count):
            place, sufficient, rank, _, offset = _OUTPUT.unpack_from(body, at)
            at += _OUTPUT.size
            dimensions = struct.unpack_from(f"<{rank}i", body, at)
            at += 4 * rank
            memory = b""
            if place == Place.MEMORY:
                (memory,) = _HANDLE.unpack_from(body, at)
                at += _HANDLE.size
            outputs.append(Output(OutputShape(dimensions, bool(sufficient)), place, offset, memory))
    except struct.error as error:
        raise Malformed(f"a RESULT of {len(body)} bytes: {error}") from None
    return tuple(outputs)
