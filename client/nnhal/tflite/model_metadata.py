"""Parser of TFLite metadata: names, normalization and labels that the author of a .tflite file has put into it.

The metadata is a flatbuffer (identifier M001) in a buffer of the model. Its label files are in a ZIP archive at the end
of the file. The parser reads a few fields, and needs neither the schema nor the `flatbuffers` package. It checks every
position and limits the number of tables, because a damaged or hostile file may have any values.

Sources: `metadata_schema.fbs` of tflite-support for the metadata, `schema.fbs` of TensorFlow Lite for the model.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from nnhal.tflite.errors import TfliteError

MAX_TABLES = 10_000
"""Maximum number of tables that are read."""
MAX_NUMBERS = 4096
"""Maximum length of a vector of numbers."""
MAX_STRING_BYTES = 1 << 16
"""Maximum size of a string."""
MAX_LABEL_BYTES = 1 << 24
"""Maximum size of a label file."""

CONTENTS = ("", "feature", "image", "bounding boxes", "audio")
"""Kinds of contents of a tensor, by the type of the union `ContentProperties`."""

_AXIS_LABELS, _VALUE_LABELS = 2, 3
"""Types of an associated file: labels of the positions on an axis, labels of values."""
_NORMALIZATION = 1
"""Type of the union `ProcessUnitOptions`."""

_Data: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True)
class BoxFormat:
    """Form of the bounding boxes in a tensor.

    Attributes:
        order: position in each box of its left, top, right and bottom; or of its x, y, width and height.
        type: "boundaries", "upper left" (x and y are a corner), "center", or "".
        coordinates: "ratio" of the image's size, or "pixel".
    """

    order: tuple[int, ...] = ()
    type: str = ""
    coordinates: str = "ratio"


@dataclass(frozen=True)
class TensorMetadata:
    """Metadata of an input or output.

    Attributes:
        content: kind of its contents, one of `CONTENTS`. "" if unknown.
        mean, std: normalization: a value for each channel, or one for all. An element is (pixel - mean) / std.
        axis_labels: a label for each position on the last axis.
        value_labels: a label for each value.
        boxes: form of the boxes, if the tensor contains bounding boxes.
    """

    name: str = ""
    description: str = ""
    content: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    axis_labels: tuple[str, ...] = ()
    value_labels: tuple[str, ...] = ()
    boxes: BoxFormat | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of either kind."""
        return self.axis_labels or self.value_labels


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of a model. `inputs` and `outputs` follow the order of the file, and may be shorter or longer."""

    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()


def parse_metadata(data: _Data) -> ModelMetadata | None:
    """Return the metadata in the bytes of a .tflite file, or None if there is none.

    Raises:
        TfliteError: the file or its metadata is damaged.
    """
    if bytes(data[4:8]) != b"TFL3":
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    buffer = _metadata_buffer(data)
    if buffer is None:
        return None
    if bytes(buffer[4:8]) != b"M001":
        raise TfliteError("metadata: the identifier M001 is missing")
    return _model(_root(buffer), _LabelFiles(data))


def _metadata_buffer(data: _Data) -> "_Data | None":
    model = _root(data)
    for entry in model.tables(6):
        if entry.string(0) != "TFLITE_METADATA":
            continue
        number = entry.number(1, "<I")
        for i, buffer in enumerate(model.tables(4, skip=number)):
            if i == 0:
                return buffer.bytes(0)
        raise TfliteError(f"metadata: there is no buffer {number}")
    return None


def _model(table: "_FlatTable", files: "_LabelFiles") -> ModelMetadata:
    graph = next(table.tables(3), None)
    inputs, outputs = (
        tuple(_tensor(tensor, files) for tensor in graph.tables(field)) if graph else () for field in (2, 3)
    )
    return ModelMetadata(
        table.string(0), table.string(1), table.string(2), table.string(4), table.string(5), inputs, outputs
    )


def _tensor(table: "_FlatTable", files: "_LabelFiles") -> TensorMetadata:
    content = table.table(3)
    kind = content.number(0, "<B") if content else 0
    mean, std = _normalization(table)
    return TensorMetadata(
        table.string(0),
        table.string(1),
        CONTENTS[kind] if kind < len(CONTENTS) else "",
        mean,
        std,
        _labels(table, _AXIS_LABELS, files),
        _labels(table, _VALUE_LABELS, files),
        _boxes(content.table(1)) if content and kind == CONTENTS.index("bounding boxes") else None,
    )


def _normalization(tensor: "_FlatTable") -> tuple[tuple[float, ...], tuple[float, ...]]:
    for unit in tensor.tables(4):
        options = unit.table(1) if unit.number(0, "<B") == _NORMALIZATION else None
        if options:
            return options.numbers(0, "<f"), options.numbers(1, "<f")
    return (), ()


def _boxes(properties: "_FlatTable | None") -> BoxFormat:
    if properties is None:
        return BoxFormat()
    type_ = {1: "boundaries", 2: "upper left", 3: "center"}.get(properties.number(1, "<B"), "")
    coordinates = "pixel" if properties.number(2, "<B") == 1 else "ratio"
    return BoxFormat(tuple(map(int, properties.numbers(0, "<I"))), type_, coordinates)


def _labels(tensor: "_FlatTable", type_: int, files: "_LabelFiles") -> tuple[str, ...]:
    """Return the labels of a tensor. The file without a locale has precedence over translations."""
    names = [(file.string(3), file.string(0)) for file in tensor.tables(6) if file.number(2, "<B") == type_]
    return files.read(min(names)[1]) if names else ()


class _LabelFiles:
    """Label files in the archive at the end of a .tflite file."""

    def __init__(self, data: _Data) -> None:
        self._data = data
        self._labels: dict[str, tuple[str, ...]] = {}

    def read(self, name: str) -> tuple[str, ...]:
        """Return the lines of a file.

        Raises:
            TfliteError: it is absent, damaged or too large.
        """
        if name not in self._labels:
            self._labels[name] = self._read(name)
        return self._labels[name]

    def _read(self, name: str) -> tuple[str, ...]:
        try:
            with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
                if archive.getinfo(name).compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                    raise TfliteError(f"metadata: {name!r} is compressed in another way than by deflate")
                with archive.open(name) as file:
                    content = file.read(MAX_LABEL_BYTES + 1)
            if len(content) > MAX_LABEL_BYTES:
                raise TfliteError(f"metadata: {name!r} is larger than {MAX_LABEL_BYTES} bytes")
            return tuple(content.decode().rstrip().splitlines())
        except KeyError:
            raise TfliteError(f"metadata: there is no file {name!r}") from None
        # a damaged or encrypted archive raises one of these
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, struct.error) as error:
            raise TfliteError(f"metadata: the file {name!r} is damaged") from error


def _root(data: _Data) -> "_FlatTable":
    reader = _Reader(data)
    return reader.table(reader.number(0, "<I"))


class _Reader:
    """Bounded access to the numbers and tables of a flatbuffer."""

    def __init__(self, data: _Data) -> None:
        self.data = data
        self._tables_left = MAX_TABLES

    def number(self, position: int, format_: str) -> Any:
        """Return the number at a position."""
        self.require(position, struct.calcsize(format_))
        return struct.unpack_from(format_, self.data, position)[0]

    def slice(self, position: int, size: int) -> _Data:
        """Return the bytes at a position."""
        self.require(position, size)
        return self.data[position : position + size]

    def require(self, position: int, size: int) -> None:
        """Raise TfliteError unless there are so many bytes at a position."""
        if position < 0 or position + size > len(self.data):
            raise TfliteError("metadata: is damaged or truncated")

    def table(self, position: int) -> "_FlatTable":
        """Return the table at a position."""
        self._tables_left -= 1
        if self._tables_left < 0:
            raise TfliteError(f"metadata: has more than {MAX_TABLES} tables")
        return _FlatTable(self, position)


class _FlatTable:
    """Table of a flatbuffer. Its fields have numbers, in the order of the schema."""

    def __init__(self, reader: _Reader, position: int) -> None:
        self._reader = reader
        self._position = position
        self._vtable = position - reader.number(position, "<i")
        self._vtable_size = reader.number(self._vtable, "<H")

    def number(self, field: int, format_: str) -> Any:
        """Return a number, or 0 if the field is absent."""
        position = self._field(field)
        return self._reader.number(position, format_) if position else 0

    def string(self, field: int) -> str:
        """Return a string, or "" if the field is absent."""
        if (vector := self._vector(field, 1, MAX_STRING_BYTES)) is None:
            return ""
        return bytes(self._reader.slice(*vector)).decode("utf-8", "replace")

    def bytes(self, field: int) -> _Data:
        """Return a vector of bytes."""
        vector = self._vector(field, 1, len(self._reader.data))
        return self._reader.slice(*vector) if vector else b""

    def numbers(self, field: int, format_: str) -> tuple[float, ...]:
        """Return a vector of numbers of 4 bytes."""
        if (vector := self._vector(field, 4, MAX_NUMBERS)) is None:
            return ()
        position, count = vector
        return tuple(self._reader.number(position + 4 * i, format_) for i in range(count))

    def table(self, field: int) -> "_FlatTable | None":
        """Return a table, or None if the field is absent."""
        position = self._field(field)
        return self._follow(position) if position else None

    def tables(self, field: int, skip: int = 0) -> "Iterator[_FlatTable]":
        """Yield the tables of a vector, without the first ones."""
        if vector := self._vector(field, 4, len(self._reader.data)):
            position, count = vector
            for i in range(skip, count):
                yield self._follow(position + 4 * i)

    def _follow(self, position: int) -> "_FlatTable":
        return self._reader.table(position + self._reader.number(position, "<I"))

    def _vector(self, field: int, element_size: int, max_count: int) -> tuple[int, int] | None:
        """Return the position of the first element, and the number of elements."""
        field_position = self._field(field)
        if not field_position:
            return None
        position = field_position + self._reader.number(field_position, "<I")
        count = self._reader.number(position, "<I")
        if count > max_count:
            raise TfliteError(f"metadata: a vector has {count} elements; expected at most {max_count}")
        self._reader.require(position + 4, count * element_size)
        return position + 4, count

    def _field(self, field: int) -> int:
        """Return the position of a field, or 0 if it is absent."""
        slot = 4 + 2 * field
        if slot + 2 > self._vtable_size:
            return 0
        offset = self._reader.number(self._vtable + slot, "<H")
        return self._position + offset if offset else 0
