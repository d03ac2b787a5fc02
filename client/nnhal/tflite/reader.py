"""Parser of .tflite files: it converts the flatbuffer to dataclasses. Only this module accesses the flatbuffer.

The numbers and positions in a damaged file are arbitrary. `read` turns the errors that they cause in the flatbuffers
library into `TfliteError`.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

import tflite
from flatbuffers.number_types import Int32Flags

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.graph import Operator, SparseDimension, Sparsity, Tensor, TfliteGraph, TfliteModel
from nnhal.types import Bytes

_IDENTIFIER = b"TFL3"
_VERSION = 3
_OMITTED = -1
"""Index of an omitted optional tensor."""
_EMPTY = (0, 0)
"""Region of a constant without elements."""

_DAMAGE = (struct.error, IndexError, TypeError, ValueError, OverflowError)
"""Errors of the flatbuffers library on numbers and positions that do not fit the file."""

T = TypeVar("T")

Table: TypeAlias = Any
"""A table of the schema. The `tflite` package has no type annotations."""
Code: TypeAlias = tuple[int, str, int]
"""Number, name and version of an operator."""


def read(data: Bytes) -> TfliteModel:
    """Read a .tflite file.

    Raises:
        TfliteError: the data is not a .tflite file, or the file is damaged.
    """
    if not data.size:
        raise TfliteError("the file is empty; expected a .tflite file")
    if bytes(data[4:8]) != _IDENTIFIER:
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    try:
        return _model(data)
    except TfliteError:
        raise
    except _DAMAGE as error:
        raise TfliteError("the table of the model is damaged or truncated") from error


def _model(data: Bytes) -> TfliteModel:
    model = tflite.Model.GetRootAs(data.data, 0)
    if model.Version() != _VERSION:
        raise TfliteError(f"has version {model.Version()} of the schema; expected {_VERSION}")
    if not model.SubgraphsLength():
        raise TfliteError("has no subgraph")
    buffers = _each(model, "Buffers", "buffer", lambda table, i: _region(table, i, data.size))
    codes = _each(model, "OperatorCodes", "operator code", lambda table, _: _code(table))
    return TfliteModel(tuple(_each(model, "Subgraphs", "subgraph", lambda t, i: _subgraph(data, t, i, buffers, codes))))


def _each(table: Table, field: str, name: str, read_element: Callable[[Table, int], T]) -> list[T]:
    """Return what a function reads from each element of a vector of tables. An error names the element."""
    elements: list[T] = []
    try:
        for i in range(getattr(table, f"{field}Length")()):
            elements.append(read_element(getattr(table, field)(i), i))
    except TfliteError:
        raise
    except _DAMAGE as error:
        raise TfliteError(f"{name} {len(elements)} is damaged or truncated") from error
    return elements


def _subgraph(
    data: Bytes, graph: Table, index: int, buffers: list[tuple[int, int] | None], codes: list[Code]
) -> TfliteGraph:
    with prefix_errors(f"subgraph {index}" if index else ""):
        return _graph(data, graph, buffers, codes)


def _graph(data: Bytes, graph: Table, buffers: list[tuple[int, int] | None], codes: list[Code]) -> TfliteGraph:
    tensors = tuple(_each(graph, "Tensors", "tensor", lambda table, i: _tensor(table, i, buffers)))
    operators = tuple(_each(graph, "Operators", "operator", lambda t, i: _operator(t, i, codes, len(tensors))))
    written = {index for operator in operators for index in operator.outputs}
    tensors = tuple(replace(t, data=None) if t.data == _EMPTY and t.index in written else t for t in tensors)
    inputs = _indexes("the list of inputs", graph.InputsAsNumpy(), len(tensors))
    outputs = _indexes("the list of outputs", graph.OutputsAsNumpy(), len(tensors))
    return TfliteGraph(data, tensors, operators, inputs, outputs)


def _region(buffer: Table, index: int, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of a buffer in the file: in the flatbuffer or, in large files, after it."""
    if length := buffer.DataLength():
        begin = buffer._tab.Vector(buffer._tab.Offset(4))
    elif length := buffer.Size():
        begin = buffer.Offset()
    else:
        return None
    if begin + length > size:
        raise TfliteError(f"is truncated: buffer {index} ends at byte {begin + length} of {size}")
    return begin, begin + length


def _code(code: Table) -> Code:
    """Return the number, the name and the version of an operator.

    Files have the number in an old field, in a new field, or in both. The accessor of the `tflite` package does not see
    small numbers that are only in the new field.
    """
    field = code._tab.Offset(10)
    new = code._tab.Get(Int32Flags, code._tab.Pos + field) if field else 0
    number = max(code.DeprecatedBuiltinCode(), new)
    name = _OPERATORS.get(number, f"operator code {number}")
    if number == tflite.BuiltinOperator.CUSTOM:
        name = f"{name} {_text(code.CustomCode())}"
    return number, name, code.Version()


def _tensor(tensor: Table, index: int, buffers: list[tuple[int, int] | None]) -> Tensor:
    quantization, shape = tensor.Quantization(), _numbers(tensor.ShapeAsNumpy())
    data = buffers[tensor.Buffer()] if tensor.Buffer() else None
    if data is None and tensor.Buffer() and 0 in shape:
        data = _EMPTY  # a constant without elements, for example the shape of a scalar
    unsupported = "has quantization of a custom kind" if quantization and quantization.DetailsType() else ""
    if tensor.IsVariable() and data is not None:
        unsupported = "is a variable with a value in the file"
    return Tensor(
        index,
        _text(tensor.Name()),
        tensor.Type(),
        shape,
        _numbers(quantization.ScaleAsNumpy()) if quantization else (),
        _numbers(quantization.ZeroPointAsNumpy()) if quantization else (),
        quantization.QuantizedDimension() if quantization else 0,
        data=data,
        unsupported=unsupported,
        is_variable=tensor.IsVariable(),
        sparsity=_sparsity(tensor.Sparsity()),
    )


def _sparsity(table: Table) -> Sparsity | None:
    if table is None:
        return None
    dimensions = tuple(_sparse_dimension(table.DimMetadata(i)) for i in range(table.DimMetadataLength()))
    return Sparsity(_numbers(table.TraversalOrderAsNumpy()), _numbers(table.BlockMapAsNumpy()), dimensions)


def _sparse_dimension(table: Table) -> SparseDimension:
    if table.Format() == tflite.DimensionType.DENSE:
        return SparseDimension(table.DenseSize())
    segments = _sparse_vector(table.ArraySegmentsType(), table.ArraySegments())
    indexes = _sparse_vector(table.ArrayIndicesType(), table.ArrayIndices())
    return SparseDimension(0, segments, indexes, is_compressed=True)


def _sparse_vector(kind: int, table: Table) -> tuple[int, ...]:
    if kind not in _SPARSE_VECTORS or table is None:
        raise TfliteError(f"is damaged: a sparse tensor has an index vector of type {kind}")
    vector = _SPARSE_VECTORS[kind]()
    vector.Init(table.Bytes, table.Pos)
    return _numbers(vector.ValuesAsNumpy())


def _operator(operator: Table, index: int, codes: list[Code], tensors: int) -> Operator:
    code, name, version = codes[operator.OpcodeIndex()]
    owner = f"operator {index} ({name})"
    kind = _OPTIONS.get(operator.BuiltinOptionsType(), "NONE")
    table = operator.BuiltinOptions()
    has_options = kind != "NONE" and table is not None
    custom = operator.CustomOptionsAsNumpy()
    return Operator(
        index,
        code,
        name,
        _indexes(owner, operator.InputsAsNumpy(), tensors, _OMITTED),
        _indexes(owner, operator.OutputsAsNumpy(), tensors),
        _options(kind, table) if has_options else {},
        options_type=kind if has_options else "",
        version=version,
        custom_options=b"" if isinstance(custom, int) else custom.tobytes(),
        intermediates=_indexes(owner, operator.IntermediatesAsNumpy(), tensors),
        unsupported="has options of a newer kind" if operator.BuiltinOptions2Type() else "",
    )


def _options(kind: str, table: Table) -> Mapping[str, Any]:
    options = getattr(tflite, kind)()
    options.Init(table.Bytes, table.Pos)
    scalars, vectors = _fields(kind)
    return {name: getattr(options, name)() for name in scalars} | {
        name: _numbers(getattr(options, f"{name}AsNumpy")()) for name in vectors
    }


@cache
def _fields(kind: str) -> tuple[list[str], list[str]]:
    """Return the names of the scalars and of the vectors in an options table.

    The generated classes have a method without arguments for each scalar, and `...AsNumpy` for each vector.
    """
    methods = {name: value for name, value in vars(getattr(tflite, kind)).items() if isinstance(value, FunctionType)}
    vectors = [name.removesuffix("AsNumpy") for name in methods if name.endswith("AsNumpy")]
    readers = [name for name, method in methods.items() if method.__code__.co_argcount == 1]
    return [name for name in readers if not name.startswith(tuple(vectors))], vectors


def _indexes(owner: str, vector: Any, count: int, lowest: int = 0) -> tuple[int, ...]:
    indexes = _numbers(vector)
    for index in indexes:
        if not lowest <= index < count:
            raise TfliteError(f"{owner} is damaged: it refers to tensor {index} of {count}")
    return indexes


def _numbers(vector: Any) -> tuple[Any, ...]:
    """Return a vector of the flatbuffer as a tuple. The library returns the number 0 for an absent vector."""
    return () if isinstance(vector, int) else tuple(vector.tolist())


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_OPERATORS = _names(tflite.BuiltinOperator)
_OPTIONS = _names(tflite.BuiltinOptions)
_SPARSE_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
