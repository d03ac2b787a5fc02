"""Writer of flatbuffers whose tables are known in advance: three times as fast as the schema's own functions.

Preparing MobileNet v2 would otherwise take more than its limit: see docs/decisions.md.

A flatbuffer is written from its end to its beginning, children first. A position is the distance from the end of the
buffer to the beginning of an object.

    buffer = Table({"size": (2, "Q")})
    writer.table(buffer, {"size": 12})
"""

import struct
from collections.abc import Mapping, Sequence

CHILD = "child"
"""Format of a field that holds the position of a child. The writer stores the distance to it, which has 32 bits."""

_ALIGNMENT = 16
"""Alignment of the whole buffer and of vectors of bytes: the schema demands it for constants."""


class Table:
    """Layout of a kind of table.

    Args:
        fields: slot in the schema and format (of `struct`, or CHILD) of each field.
    """

    def __init__(self, fields: Mapping[str, tuple[int, str]]) -> None:
        offsets, layout = [0] * (1 + max((slot for slot, _ in fields.values()), default=-1)), "<i"
        self.fields: list[tuple[str, int]] = []
        self.align = 4
        for name, (slot, code) in sorted(fields.items(), key=lambda item: -_size(item[1][1])):
            layout += f"{-struct.calcsize(layout) % _size(code)}x"
            offsets[slot] = struct.calcsize(layout)
            layout += "I" if code == CHILD else code
            self.fields.append((name, offsets[slot] if code == CHILD else 0))
            self.align = max(self.align, _size(code))
        self.layout = struct.Struct(layout)
        self.vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), self.layout.size, *offsets)


def _size(code: str) -> int:
    return 4 if code == CHILD else struct.calcsize(f"<{code}")


class FlatbufferWriter:
    """One flatbuffer under construction."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._vtables: dict[Table, int] = {}

    def vector(self, code: str, values: Sequence[int | float]) -> int:
        """Add a vector of numbers and return its position."""
        return self._vector(struct.pack(f"<{len(values)}{code}", *values), len(values), struct.calcsize(f"<{code}"))

    def blob(self, raw: bytes | memoryview) -> int:
        """Add a vector of bytes and return its position."""
        self._push(raw, _ALIGNMENT)
        return self._push_count(len(raw))

    def string(self, text: bytes) -> int:
        """Add a string and return its position."""
        self._push(text + b"\0", 4)
        return self._push_count(len(text))

    def children(self, positions: Sequence[int]) -> int:
        """Add a vector of children and return its position."""
        size = 4 * len(positions)
        start = self._size + size + -(self._size + size) % 4
        distances = [start - 4 * i - position for i, position in enumerate(positions)]
        return self._vector(struct.pack(f"<{len(positions)}I", *distances), len(positions), 4)

    def table(self, kind: Table, values: Mapping[str, int | float | bool]) -> int:
        """Add a table with a value for each field of its kind, and return its position."""
        if kind not in self._vtables:
            self._vtables[kind] = self._push(kind.vtable, 2)
        start = self._size + kind.layout.size
        start += -start % kind.align
        stored = [start - offset - values[name] if offset else values[name] for name, offset in kind.fields]
        return self._push(kind.layout.pack(self._vtables[kind] - start, *stored), kind.align)

    def finish(self, root: int, identifier: bytes) -> bytes:
        """Return the flatbuffer."""
        size = self._size + 8
        size += -size % _ALIGNMENT
        self._push(struct.pack("<I4s", size - root, identifier), _ALIGNMENT)
        return b"".join(reversed(self._pieces))

    def _vector(self, raw: bytes, count: int, item: int) -> int:
        self._push(raw, max(4, item))
        return self._push_count(count)

    def _push_count(self, count: int) -> int:
        return self._push(struct.pack("<I", count), 4)

    def _push(self, raw: bytes | memoryview, align: int) -> int:
        """Put bytes in front of the others, at a multiple of `align` from the end, and return their position."""
        if padding := -(self._size + len(raw)) % align:
            self._pieces.append(bytes(padding))
        self._pieces.append(raw)
        self._size += len(raw) + padding
        return self._size
