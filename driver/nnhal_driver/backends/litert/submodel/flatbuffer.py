"""Reader of flatbuffers from untrusted clients: the rules of flatbuffers' verifier, applied to each read.

Every offset, vtable, vector and string is checked against the bounds and the alignment before it is followed. The
schema has no recursive tables, so that no chain of offsets is longer than the schema is deep. Several offsets may point
to the same table. Limits on the number of tables and elements keep the work of a small file small.
"""

import struct
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from nnhal.types import AnyArray, Bytes
from nnhal_driver.backends.litert.submodel.model import InvalidSubModel
from nnhal_driver.backends.litert.submodel.schema import SCALARS, TABLES, SchemaField

Fields = dict[str, object]

_MAX_BYTES = 2**31 - 1
_MAX_TABLES = 200_000
_MAX_ELEMENTS = 4_000_000
"""Limit of the elements of all vectors but those of bytes."""
_HEADER_BYTES = 8
_DEFAULTS: Mapping[str, Fields] = {
    table: {field.name: field.default for field in fields if field.type not in ("ignored", "refused")}
    for table, fields in TABLES.items()
}


class FlatbufferReader:
    """Reader of one flatbuffer.

    Args:
        data: the whole flatbuffer.
        identifier: its expected file identifier.

    Raises:
        InvalidSubModel: it is too short or too long, or has another identifier.
    """

    def __init__(self, data: Bytes, identifier: bytes) -> None:
        self._data = data.data
        self._size = len(data)
        self._tables = self._elements = 0
        if not _HEADER_BYTES <= self._size <= _MAX_BYTES:
            raise InvalidSubModel(f"the flatbuffer has {self._size} bytes; expected {_HEADER_BYTES} to {_MAX_BYTES}")
        found = bytes(self._data[4:8])
        if found != identifier:
            raise InvalidSubModel(f"the flatbuffer has identifier {found!r}; expected {identifier!r}")

    def root(self, table: str) -> Fields:
        """Return the fields of the root table.

        Raises:
            InvalidSubModel: the flatbuffer is damaged.
        """
        return self.table(table, self._follow(0, "the root"), table.lower())

    def table(self, table: str, position: int, path: str) -> Fields:
        """Return the fields of a table by name. Absent ones have their defaults.

        Args:
            table: name of the table in the schema.
            position: position of the table.
            path: the field that refers to it, for messages.

        Raises:
            InvalidSubModel: the table is damaged, or has fields that are not supported.
        """
        self._tables += 1
        if self._tables > _MAX_TABLES:
            raise InvalidSubModel(f"{path}: more than {_MAX_TABLES} tables")
        offsets = self._vtable(position, path)
        fields = TABLES[table]
        if len(offsets) > len(fields) and any(offsets[len(fields) :]):
            raise InvalidSubModel(f"{path}: {table} has a field that is not in the schema")
        values = dict(_DEFAULTS[table])
        for offset, field in zip(offsets, fields, strict=False):
            if offset and field.type != "ignored":
                values[field.name] = self._value(field, position + offset, f"{path}.{field.name}")
        return values

    def _vtable(self, position: int, path: str) -> tuple[int, ...]:
        """Return the offsets of a table's fields from the table; 0 for absent ones."""
        self._check(position, 4, 4, path)
        vtable = position - int(struct.unpack_from("<i", self._data, position)[0])
        self._check(vtable, 4, 2, path)
        (size,) = struct.unpack_from("<H", self._data, vtable)
        if size % 2 or size < 4:
            raise InvalidSubModel(f"{path}: a vtable has {size} bytes; expected an even number of at least 4")
        self._check(vtable, size, 2, path)
        return struct.unpack_from(f"<{size // 2 - 2}H", self._data, vtable + 4)

    def _value(self, field: SchemaField, position: int, path: str) -> object:
        if field.is_vector:
            return self._vector(field.type, self._follow(position, path), path)
        code = SCALARS.get(field.type)
        if code is not None:
            self._check(position, size := struct.calcsize(code), size, path)
            (number,) = struct.unpack_from("<" + code, self._data, position)
            if field.fixed and number != field.default:
                raise InvalidSubModel(f"{path} is {number}; only {field.default} is supported")
            return bool(number) if field.type == "bool" else number
        if field.type == "refused":
            raise InvalidSubModel(f"{path} is not supported")
        if field.type == "string":
            return self._string(self._follow(position, path), path)
        if field.type == "offset":
            return self._follow(position, path)
        return self.table(field.type, self._follow(position, path), path)

    def _vector(self, type_: str, position: int, path: str) -> AnyArray | list[Fields]:
        """Return a vector: a view of scalars, or the fields of tables."""
        self._check(position, 4, 4, path)
        (length,) = struct.unpack_from("<I", self._data, position)
        code = SCALARS.get(type_)
        self._check(position + 4, length * (4 if code is None else struct.calcsize(code)), 4, path)
        if code is not None and type_ != "uint8":
            self._count(length, path)
        if code is not None:
            dtype = np.dtype("<" + code)
            return np.frombuffer(self._data, dtype, length, position + 4) if length else np.empty(0, dtype)
        self._count(length, path)
        positions = range(position + 4, position + 4 + 4 * length, 4)
        return [self.table(type_, self._follow(place, path), f"{path}[{i}]") for i, place in enumerate(positions)]

    def _count(self, elements: int, path: str) -> None:
        self._elements += elements
        if self._elements > _MAX_ELEMENTS:
            raise InvalidSubModel(f"{path}: more than {_MAX_ELEMENTS} elements of vectors")

    def _string(self, position: int, path: str) -> str:
        self._check(position, 4, 4, path)
        (length,) = struct.unpack_from("<I", self._data, position)
        self._check(position + 4, length + 1, 4, path)
        if self._data[position + 4 + length]:
            raise InvalidSubModel(f"{path}: the string does not end with a zero byte")
        self._count(length, path)
        return bytes(self._data[position + 4 : position + 4 + length]).decode(errors="replace")

    def _follow(self, position: int, path: str) -> int:
        """Return the position to which the offset at a position refers."""
        self._check(position, 4, 4, path)
        (offset,) = struct.unpack_from("<I", self._data, position)
        if not 0 < offset <= _MAX_BYTES:
            raise InvalidSubModel(f"{path}: offset {offset} is invalid")
        return position + int(offset)

    def _check(self, position: int, size: int, alignment: int, path: str) -> None:
        """Check that some bytes are within the data and aligned."""
        if position < 0 or position + size > self._size:
            self._fail(position, size, path)
        if position % alignment:
            raise InvalidSubModel(f"{path}: position {position} is not a multiple of {alignment}")

    def _fail(self, position: int, size: int, path: str) -> NoReturn:
        raise InvalidSubModel(f"{path}: bytes {position} to {position + size} are outside of the {self._size} bytes")
