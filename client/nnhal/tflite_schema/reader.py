"""Reader of flatbuffers from untrusted sources: the rules of flatbuffers' verifier, applied to each read.

Every offset, vtable, vector and string is checked against the bounds and the alignment before it is followed. The
schema has no recursive tables, so that no chain of offsets is longer than the schema is deep. Several offsets may point
to the same table. Limits on the number of tables and elements keep the work of a small file small.
"""

import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from nnhal.tflite_schema.tables import SCALARS, TABLES, SchemaField
from nnhal.types import AnyArray, Bytes

Fields = dict[str, Any]
"""Values of the fields of a table by name. See `SchemaField` for their types; a vector of scalars is an array."""
Tables = Mapping[str, tuple[SchemaField, ...]]

_MAX_BYTES = 2**31 - 1
_MAX_TABLES = 200_000
_MAX_ELEMENTS = 4_000_000
"""Limit of the elements of all vectors but those of bytes."""
_HEADER_BYTES = 8


class InvalidFlatbuffer(ValueError):
    """A flatbuffer is damaged, or has a field that its reader refuses. The message names the field."""


def numbers(vector: AnyArray | None) -> tuple[Any, ...]:
    """Return the elements of a vector of scalars; none if it is absent."""
    return () if vector is None else tuple(vector.tolist())


class FlatbufferReader:
    """Reader of one flatbuffer.

    Args:
        data: the flatbuffer, which other data may follow.
        identifier: its expected file identifier.
        strict: whether to refuse fields that are not in the schema, or that it marks with `!`. The limit of the number
            of elements is constant then, otherwise a file that has more bytes may have more elements.

    Raises:
        InvalidFlatbuffer: it is too short, or has another identifier.
    """

    def __init__(self, data: Bytes, identifier: bytes, tables: Tables = TABLES, *, strict: bool = False) -> None:
        self._data = data.data
        self._size = min(len(data), _MAX_BYTES)
        self._schema = tables
        self._strict = strict
        self._defaults: dict[str, Fields] = {}
        self._tables = self._elements = 0
        self._max_tables, self._max_elements = _MAX_TABLES, _MAX_ELEMENTS
        if not strict:  # what nothing shares takes at least as many bytes
            self._max_tables, self._max_elements = max(_MAX_TABLES, len(data) // 4), max(_MAX_ELEMENTS, len(data))
        if len(data) < _HEADER_BYTES:
            raise InvalidFlatbuffer(f"the flatbuffer has {len(data)} bytes; expected at least {_HEADER_BYTES}")
        found = bytes(self._data[4:8])
        if found != identifier:
            raise InvalidFlatbuffer(f"the flatbuffer has identifier {found!r}; expected {identifier!r}")

    def root(self, table: str) -> Fields:
        """Return the fields of the root table.

        Raises:
            InvalidFlatbuffer: the flatbuffer is damaged.
        """
        return self.table(table, self._follow(0, "the root"), table.lower())

    def table(self, table: str, position: int, path: str) -> Fields:
        """Return the fields of a table by name. Absent ones have their defaults.

        `path` is the field that refers to the table, for messages.

        Raises:
            InvalidFlatbuffer: the table is damaged, or has fields that are not supported.
        """
        self._tables += 1
        if self._tables > self._max_tables:
            raise InvalidFlatbuffer(f"{path}: more than {self._max_tables} tables")
        offsets = self._vtable(position, path)
        fields = self._schema[table]
        if self._strict and len(offsets) > len(fields) and any(offsets[len(fields) :]):
            raise InvalidFlatbuffer(f"{path}: {table} has a field that is not in the schema")
        if table not in self._defaults:
            self._defaults[table] = {field.name: field.default for field in fields if field.type != "ignored"}
        values = dict(self._defaults[table])
        for offset, field in zip(offsets, fields, strict=False):
            if offset and (field.type != "ignored" or (field.fixed and self._strict)):
                values[field.name] = self._value(field, position + offset, f"{path}.{field.name}")
        return values

    def _vtable(self, position: int, path: str) -> tuple[int, ...]:
        """Return the offsets of a table's fields from the table; 0 for absent ones."""
        self._check(position, 4, 4, path)
        vtable = position - int(struct.unpack_from("<i", self._data, position)[0])
        self._check(vtable, 4, 2, path)
        (size,) = struct.unpack_from("<H", self._data, vtable)
        if size % 2 or size < 4:
            raise InvalidFlatbuffer(f"{path}: a vtable has {size} bytes; expected an even number of at least 4")
        self._check(vtable, size, 2, path)
        return struct.unpack_from(f"<{size // 2 - 2}H", self._data, vtable + 4)

    def _value(self, field: SchemaField, position: int, path: str) -> object:
        code = SCALARS.get(field.type)
        if code is not None and not field.is_vector:
            return self._scalar(field, code, position, path)
        if field.fixed and self._strict:
            raise InvalidFlatbuffer(f"{path} is not supported")
        target = self._follow(position, path)
        if field.is_vector:
            return self._vector(field.type, target, path)
        if field.type == "region":
            begin, length = self._elements_of(target, 1, path)
            return begin, begin + length
        if field.type == "string":
            return self._string(target, path)
        return target if field.type == "offset" else self.table(field.type, target, path)

    def _scalar(self, field: SchemaField, code: str, position: int, path: str) -> object:
        self._check(position, size := struct.calcsize(code), size, path)
        (number,) = struct.unpack_from("<" + code, self._data, position)
        if field.fixed and self._strict and number != field.default:
            raise InvalidFlatbuffer(f"{path} is {number}; only {field.default} is supported")
        return bool(number) if field.type == "bool" else number

    def _vector(self, type_: str, position: int, path: str) -> AnyArray | list[Fields]:
        """Return a vector: a view of scalars, or the fields of tables."""
        code = SCALARS.get(type_)
        begin, length = self._elements_of(position, 4 if code is None else struct.calcsize(code), path)
        if type_ != "uint8":
            self._count(length, path)
        if code is not None:
            dtype = np.dtype("<" + code)
            return np.frombuffer(self._data, dtype, length, begin) if length else np.empty(0, dtype)
        places = range(begin, begin + 4 * length, 4)
        return [self.table(type_, self._follow(place, path), f"{path}[{i}]") for i, place in enumerate(places)]

    def _elements_of(self, position: int, size: int, path: str) -> tuple[int, int]:
        """Return the position of the first element of a vector, and the number of elements of this size."""
        self._check(position, 4, 4, path)
        (length,) = struct.unpack_from("<I", self._data, position)
        self._check(position + 4, length * size, 4, path)
        return position + 4, length

    def _count(self, elements: int, path: str) -> None:
        self._elements += elements
        if self._elements > self._max_elements:
            raise InvalidFlatbuffer(f"{path}: more than {self._max_elements} elements of vectors")

    def _string(self, position: int, path: str) -> str:
        begin, length = self._elements_of(position, 1, path)
        self._check(begin, length + 1, 4, path)
        if self._data[begin + length]:
            raise InvalidFlatbuffer(f"{path}: the string does not end with a zero byte")
        self._count(length, path)
        return bytes(self._data[begin : begin + length]).decode(errors="replace")

    def _follow(self, position: int, path: str) -> int:
        """Return the position to which the offset at a position refers."""
        self._check(position, 4, 4, path)
        (offset,) = struct.unpack_from("<I", self._data, position)
        if not 0 < offset <= _MAX_BYTES:
            raise InvalidFlatbuffer(f"{path}: offset {offset} is invalid")
        return position + int(offset)

    def _check(self, position: int, size: int, alignment: int, path: str) -> None:
        """Check that some bytes are within the data and aligned."""
        if position < 0 or position + size > self._size:
            self._fail(position, size, path)
        if position % alignment:
            raise InvalidFlatbuffer(f"{path}: position {position} is not a multiple of {alignment}")

    def _fail(self, position: int, size: int, path: str) -> NoReturn:
        raise InvalidFlatbuffer(f"{path}: bytes {position} to {position + size} are outside of the {self._size} bytes")
