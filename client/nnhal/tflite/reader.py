"""Parser of .tflite files: it converts the flatbuffer to dataclasses."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.graph import TENSOR_DTYPES, Operator, SparseDimension, Sparsity, Tensor, TfliteGraph, TfliteSignature
from nnhal.tflite_schema import BuiltinOperator
from nnhal.tflite_schema.enumerations import DimensionType, SparseIndexVector
from nnhal.tflite_schema.packing import IDENTIFIER, VERSION
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer, numbers
from nnhal.tflite_schema.tables import NEWER_OPTIONS_NAMES, OPTIONS_NAMES
from nnhal.types import AnyArray, Bytes

_OMITTED = -1
"""Index of an omitted optional tensor."""
_EMPTY = (0, 0)
"""Region of a constant without elements."""

_OPTIONS_UNIONS = {"builtin_options": OPTIONS_NAMES, "builtin_options_2": NEWER_OPTIONS_NAMES}
"""Names of the tables of options by their numbers, for each field of an operator that may have options."""
_BLOCKWISE = 2
"""Number of BlockwiseQuantization in QuantizationDetails."""
_OPERATORS = frozenset(BuiltinOperator)

T = TypeVar("T")
Region: TypeAlias = tuple[int, int]
"""First byte and end of a constant in the file."""
Code: TypeAlias = tuple[int, str, int]
"""Number, name and version of an operator."""


def read(data: Bytes, folder: Path | None = None) -> tuple[TfliteGraph, ...]:
    """Return the subgraphs of a .tflite file. The first one is the main subgraph.

    `folder` has the files with further constants, to which it may refer.

    Raises:
        TfliteError: the data is not a .tflite file, or the file is damaged.
    """
    if not data.size:
        raise TfliteError("the file is empty; expected a .tflite file")
    if bytes(data[4:8]) != IDENTIFIER:
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    try:
        return _FileConversion(data, folder).convert()
    except InvalidFlatbuffer as error:
        raise TfliteError(f"is damaged or truncated: {error}") from error


class _FileConversion:
    """Conversion of the fields of one file."""

    def __init__(self, data: Bytes, folder: Path | None) -> None:
        self._data = data
        self._folder = folder
        self._reader = FlatbufferReader(data, IDENTIFIER)
        self._model = self._reader.root("Model")
        if self._model["version"] != VERSION:
            raise TfliteError(f"has version {self._model['version']} of the schema; expected {VERSION}")
        if not self._model["subgraphs"]:
            raise TfliteError("has no subgraph")
        buffers = self._model["buffers"] or []
        self._regions = [self._region(buffer, index) for index, buffer in enumerate(buffers)]
        self._graphs: list[TfliteGraph] = []
        self._codes = [_code(code) for code in self._model["operator_codes"] or []]

    def convert(self) -> tuple[TfliteGraph, ...]:
        for index, fields in enumerate(self._model["subgraphs"]):
            with prefix_errors(f"subgraph {index}" if index else ""):
                signatures = self._signatures(index)
                self._graphs.append(self._graph(fields, signatures, is_called=index > 0 and not signatures))
        return tuple(self._graphs)

    def _region(self, buffer: Fields, index: int) -> Region | None:
        """Return the first byte and the end of a buffer in the file: in the flatbuffer or, in large files, after it."""
        begin, end = buffer["data"] or _EMPTY
        if begin == end:
            begin, end = buffer["offset"], buffer["offset"] + buffer["size"]
        if end > self._data.size and begin != end:
            raise TfliteError(f"is truncated: buffer {index} ends at byte {end} of {self._data.size}")
        return (begin, end) if begin != end else None

    def _graph(self, fields: Fields, signatures: tuple[TfliteSignature, ...], *, is_called: bool) -> TfliteGraph:
        tensors = [self._tensor(tensor, index) for index, tensor in enumerate(fields["tensors"] or [])]
        if is_called:  # an example shape of a loop's body would have LiteRT prepare XNNPACK for it alone
            shapes = (numbers(tensor["shape_signature"]) for tensor in fields["tensors"] or [])
            tensors = [replace(t, shape=shape or t.shape) for t, shape in zip(tensors, shapes, strict=True)]
        count = len(tensors)
        operators = [self._operator(operator, index, count) for index, operator in enumerate(fields["operators"] or [])]
        written = {index for operator in operators for index in operator.outputs}
        return TfliteGraph(
            self._data,
            tuple(replace(t, data=None) if t.data == _EMPTY and t.index in written else t for t in tensors),
            tuple(operators),
            _indexes("the list of inputs", fields["inputs"], count),
            _indexes("the list of outputs", fields["outputs"], count),
            self._graphs,
            signatures,
        )

    def _signatures(self, index: int) -> tuple[TfliteSignature, ...]:
        found = (fields for fields in self._model["signature_defs"] or [] if fields["subgraph_index"] == index)
        return tuple(
            TfliteSignature(fields["signature_key"] or "", _names(fields["inputs"]), _names(fields["outputs"]))
            for fields in found
        )

    def _tensor(self, fields: Fields, index: int) -> Tensor:
        quantization, buffer = fields["quantization"] or {}, fields["buffer"]
        shape = numbers(fields["shape"])
        data = _element(f"tensor {index}", "buffer", self._regions, buffer) if buffer else None
        if data is None and buffer and 0 in shape:
            data = _EMPTY  # a constant without elements, for example the shape of a scalar
        kind, details = quantization.get("details_type", 0), quantization.get("details")
        unsupported = "has quantization of a custom kind" if kind not in (0, _BLOCKWISE) else ""
        if fields["is_variable"] and data is not None:
            unsupported = "is a variable with a value in the file"
        with prefix_errors(f"tensor {index}"):
            sparsity = self._sparsity(fields["sparsity"])
            external = self._external_values(fields, shape) if fields["external_buffer"] else None
        return Tensor(
            index,
            fields["name"] or "",
            fields["type"],
            shape,
            numbers(quantization.get("scale")),
            numbers(quantization.get("zero_point")),
            quantization.get("quantized_dimension", 0),
            self._blocks(details, index) if kind == _BLOCKWISE and details is not None else (),
            data,
            unsupported,
            is_variable=fields["is_variable"],
            sparsity=sparsity,
            folded=external,
        )

    def _external_values(self, fields: Fields, shape: tuple[int, ...]) -> AnyArray:
        """Return the value of a constant in another file, as a view of that file."""
        buffers = {buffer["id"]: buffer for buffer in self._model["external_buffers"] or []}
        groups = self._model["external_buffer_groups"] or []
        buffer, dtype = buffers.get(fields["external_buffer"]), TENSOR_DTYPES.get(fields["type"])
        if buffer is None or buffer["packing"] or dtype is None:
            raise TfliteError(f"has an unsupported value in another file: buffer {fields['external_buffer']}")
        name = _element("its value", "group", groups, buffer["group"])["name"] or ""
        if self._folder is None:
            raise TfliteError(f"has its value in the file {name!r}: load the model by its path")
        if Path(name).name != name:
            raise TfliteError(f"has its value in {name!r}; expected a file in the folder of the model")
        try:
            return np.memmap(self._folder / name, dtype, "r", buffer["offset"], shape)
        except (OSError, ValueError) as error:
            raise TfliteError(f"has its value in {name!r}, which cannot be read: {error}") from error

    def _blocks(self, position: int, index: int) -> tuple[int, int, int]:
        fields = self._reader.table("BlockwiseQuantization", position, f"tensor {index}: quantization")
        return fields["scales"], fields["zero_points"], fields["block_size"]

    def _sparsity(self, fields: Fields | None) -> Sparsity | None:
        if fields is None:
            return None
        dimensions = tuple(map(self._sparse_dimension, fields["dim_metadata"] or []))
        return Sparsity(numbers(fields["traversal_order"]), numbers(fields["block_map"]), dimensions)

    def _sparse_dimension(self, fields: Fields) -> SparseDimension:
        if fields["format"] == DimensionType.DENSE:
            return SparseDimension(fields["dense_size"])
        segments, indexes = (self._sparse_vector(fields, name) for name in ("array_segments", "array_indices"))
        return SparseDimension(0, segments, indexes, is_compressed=True)

    def _sparse_vector(self, fields: Fields, name: str) -> tuple[int, ...]:
        kind, position = fields[f"{name}_type"], fields[name]
        if not SparseIndexVector.NONE < kind <= SparseIndexVector.Uint8Vector or position is None:
            raise TfliteError(f"is damaged: it is sparse with an index vector of type {kind}")
        return numbers(self._reader.table(SparseIndexVector(kind).name, position, name)["values"])

    def _operator(self, fields: Fields, index: int, tensors: int) -> Operator:
        code, name, version = _element(f"operator {index}", "operator code", self._codes, fields["opcode_index"])
        owner = f"operator {index} ({name})"
        options_type, options, unsupported = "", {}, ""
        for union, names in _OPTIONS_UNIONS.items():
            number, position = fields[f"{union}_type"], fields[union]
            if number and number not in names:
                unsupported = "has options of a newer kind"
            elif number and position is not None:
                options_type, options = names[number], self._options(names[number], position, owner)
        custom = fields["custom_options"]
        return Operator(
            index,
            code,
            name,
            _indexes(owner, fields["inputs"], tensors, _OMITTED),
            _indexes(owner, fields["outputs"], tensors),
            options,
            options_type,
            version,
            self._large_custom_options(fields, owner) if custom is None else custom.tobytes(),
            intermediates=_indexes(owner, fields["intermediates"], tensors),
            unsupported=unsupported,
        )

    def _large_custom_options(self, fields: Fields, owner: str) -> bytes:
        """Return the options of a custom operator in a large file, which follow the flatbuffer."""
        begin, size = fields["large_custom_options_offset"], fields["large_custom_options_size"]
        if begin + size > self._data.size:
            raise TfliteError(f"{owner} is truncated: its options end at byte {begin + size} of {self._data.size}")
        return self._data[begin : begin + size].tobytes()

    def _options(self, options_type: str, position: int, owner: str) -> Fields:
        options = self._reader.table(options_type, position, f"{owner}: options")
        return {name: numbers(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}


def _code(fields: Fields) -> Code:
    """Return the number, the name and the version of an operator. Files have the number in an old or a new field."""
    number = max(fields["deprecated_builtin_code"], fields["builtin_code"])
    name = BuiltinOperator(number).name if number in _OPERATORS else f"operator code {number}"
    if number == BuiltinOperator.CUSTOM:
        name = f"{name} {fields['custom_code'] or ''}"
    return number, name, fields["version"]


def _names(entries: Sequence[Fields] | None) -> dict[int, str]:
    """Return names by tensor."""
    return {fields["tensor_index"]: fields["name"] or "" for fields in entries or []}


def _element(owner: str, name: str, elements: Sequence[T], index: int) -> T:
    if not 0 <= index < len(elements):
        raise TfliteError(f"{owner} is damaged: it refers to {name} {index} of {len(elements)}")
    return elements[index]


def _indexes(owner: str, vector: AnyArray | None, count: int, lowest: int = 0) -> tuple[int, ...]:
    indexes = numbers(vector)
    for index in indexes:
        if not lowest <= index < count:
            raise TfliteError(f"{owner} is damaged: it refers to tensor {index} of {count}")
    return indexes
