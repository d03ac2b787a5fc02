"""Parser of .tflite files: it converts the flatbuffer to dataclasses. Only this module accesses the flatbuffer.

The numbers and positions in a damaged file are arbitrary. `read` turns the errors that they cause in the flatbuffers
library into `TfliteError`.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias

import tflite
from flatbuffers.number_types import Int32Flags

from nnhal.tflite.errors import TfliteError
from nnhal.types import Bytes

_IDENTIFIER = b"TFL3"
_VERSION = 3
_OMITTED = -1
"""Index of an omitted optional tensor."""

Table: TypeAlias = Any
"""A table of the schema. The `tflite` package has no type annotations."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the main subgraph.

    Attributes:
        type: `tflite.TensorType`.
        scales: () without quantization, one scale, or one per index of `quantized_dimension`.
        zero_points: zero points that belong to `scales`.
        data: first byte and end, in the file, of a constant's little-endian elements; None for other tensors.
        unsupported: the reason why the tensor cannot be used, or "".
    """

    index: int
    name: str
    type: int
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    quantized_dimension: int
    data: tuple[int, int] | None
    unsupported: str

    def __str__(self) -> str:
        return f"tensor {self.index} ({self.name!r})"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the main subgraph.

    Attributes:
        code: `tflite.BuiltinOperator`.
        name: the name in the schema, followed by the custom name of a custom operator.
        inputs: indexes of tensors; -1 for an omitted optional tensor.
        options: fields of the options table, by their names in the `tflite` package ("StrideW").
    """

    index: int
    code: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TfliteGraph:
    """The main subgraph, and the bytes of the file, which contain its constants."""

    data: Bytes
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(data: Bytes) -> TfliteGraph:
    """Read the main subgraph of a .tflite file.

    Raises:
        TfliteError: the data is not a .tflite file, or the file is damaged.
    """
    if bytes(data[4:8]) != _IDENTIFIER:
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    try:
        return _graph(data)
    except TfliteError:
        raise
    except (struct.error, IndexError, TypeError, ValueError, OverflowError) as error:
        raise TfliteError(f"is damaged or truncated: {error}") from error


def _graph(data: Bytes) -> TfliteGraph:
    model = tflite.Model.GetRootAs(data.data, 0)
    if model.Version() != _VERSION:
        raise TfliteError(f"has version {model.Version()} of the schema; expected {_VERSION}")
    if not model.SubgraphsLength():
        raise TfliteError("has no subgraph")
    main = model.Subgraphs(0)
    buffers = [_region(model.Buffers(i), i, data.size) for i in range(model.BuffersLength())]
    codes = [_code(model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())]
    tensors = tuple(_tensor(main.Tensors(i), i, buffers) for i in range(main.TensorsLength()))
    operators = tuple(_operator(main.Operators(i), i, codes, len(tensors)) for i in range(main.OperatorsLength()))
    inputs = _indexes(main.InputsAsNumpy(), len(tensors))
    return TfliteGraph(data, tensors, operators, inputs, _indexes(main.OutputsAsNumpy(), len(tensors)))


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


def _code(code: Table) -> tuple[int, str]:
    """Return the number and the name of an operator.

    Files have the number in an old field, in a new field, or in both. The accessor of the `tflite` package does not see
    small numbers that are only in the new field.
    """
    field = code._tab.Offset(10)
    new = code._tab.Get(Int32Flags, code._tab.Pos + field) if field else 0
    number = max(code.DeprecatedBuiltinCode(), new)
    name = _OPERATORS.get(number, f"operator code {number}")
    return number, f"{name} {_text(code.CustomCode())}" if number == tflite.BuiltinOperator.CUSTOM else name


def _tensor(tensor: Table, index: int, buffers: list[tuple[int, int] | None]) -> Tensor:
    quantization = tensor.Quantization()
    return Tensor(
        index,
        _text(tensor.Name()),
        tensor.Type(),
        _numbers(tensor.ShapeAsNumpy()),
        _numbers(quantization.ScaleAsNumpy()) if quantization else (),
        _numbers(quantization.ZeroPointAsNumpy()) if quantization else (),
        quantization.QuantizedDimension() if quantization else 0,
        buffers[tensor.Buffer()] if tensor.Buffer() else None,
        _unsupported(tensor, quantization),
    )


def _unsupported(tensor: Table, quantization: Table) -> str:
    if tensor.IsVariable():
        return "is a variable, which keeps its value between executions"
    if tensor.Sparsity():
        return "is stored sparsely"
    if quantization and quantization.DetailsType():
        return "has quantization of a custom kind"
    return ""


def _operator(operator: Table, index: int, codes: list[tuple[int, str]], tensors: int) -> Operator:
    code, name = codes[operator.OpcodeIndex()]
    inputs = _indexes(operator.InputsAsNumpy(), tensors, _OMITTED)
    return Operator(index, code, name, inputs, _indexes(operator.OutputsAsNumpy(), tensors), _options(operator))


def _options(operator: Table) -> Mapping[str, Any]:
    table, kind = operator.BuiltinOptions(), _OPTIONS.get(operator.BuiltinOptionsType(), "NONE")
    if table is None or kind == "NONE":
        return {}
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


def _indexes(vector: Any, count: int, lowest: int = 0) -> tuple[int, ...]:
    indexes = _numbers(vector)
    for index in indexes:
        if not lowest <= index < count:
            raise TfliteError(f"is damaged: it refers to tensor {index} of {count}")
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
