"""Reads a .tflite file: flatbuffers in, plain dataclasses out. All access to the flatbuffer is here.

Numbers and positions in a file can be anything; what a damaged file makes the flatbuffers library raise becomes
`TfliteError` in `read`, and nobody else needs to care.
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
"""Index of an optional tensor that is not given."""

Table: TypeAlias = Any
"""A table of the schema; the `tflite` package has no types."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the main subgraph.

    Attributes:
        type: `tflite.TensorType`.
        scales, zero_points: of its quantisation: none, one, or one per index of `quantized_dimension`.
        data: first byte and end, in the file, of a constant's little-endian elements; None: not a constant.
        obstacle: why it cannot be used at all, or "".
    """

    index: int
    name: str
    type: int
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    quantized_dimension: int
    data: tuple[int, int] | None
    obstacle: str

    def __str__(self) -> str:
        return f"tensor {self.index} ({self.name!r})"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the main subgraph.

    Attributes:
        code: `tflite.BuiltinOperator`.
        name: its name in the schema; of a custom operator also its own.
        inputs: indexes of tensors; -1 is an optional one that is not given.
        options: the fields of its options table, by their names in the `tflite` package ("StrideW").
    """

    index: int
    code: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """The main subgraph, and the bytes of the file that its constants lie in."""

    data: Bytes
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(data: Bytes) -> Graph:
    """Reads the main subgraph of a .tflite file.

    Raises:
        TfliteError: this is no .tflite file, or a damaged one.
    """
    if bytes(data[4:8]) != _IDENTIFIER:
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    try:
        return _graph(data)
    except TfliteError:
        raise
    except (struct.error, IndexError, TypeError, ValueError, OverflowError) as error:
        raise TfliteError(f"is damaged or cut off: {error}") from error


def _graph(data: Bytes) -> Graph:
    model = tflite.Model.GetRootAs(data.data, 0)
    if model.Version() != _VERSION:
        raise TfliteError(f"has version {model.Version()} of the schema, not {_VERSION}")
    if not model.SubgraphsLength():
        raise TfliteError("has no subgraph")
    main = model.Subgraphs(0)
    buffers = [_region(model.Buffers(i), i, data.size) for i in range(model.BuffersLength())]
    codes = [_code(model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())]
    tensors = tuple(_tensor(main.Tensors(i), i, buffers) for i in range(main.TensorsLength()))
    operators = tuple(_operator(main.Operators(i), i, codes, len(tensors)) for i in range(main.OperatorsLength()))
    inputs = _indexes(main.InputsAsNumpy(), len(tensors))
    return Graph(data, tensors, operators, inputs, _indexes(main.OutputsAsNumpy(), len(tensors)))


def _region(buffer: Table, index: int, size: int) -> tuple[int, int] | None:
    """Where a buffer's bytes lie in the file: within the flatbuffer or, in large files, behind it."""
    if length := buffer.DataLength():
        begin = buffer._tab.Vector(buffer._tab.Offset(4))
    elif length := buffer.Size():
        begin = buffer.Offset()
    else:
        return None
    if begin + length > size:
        raise TfliteError(f"is cut off: buffer {index} ends at byte {begin + length} of {size}")
    return begin, begin + length


def _code(code: Table) -> tuple[int, str]:
    """Number and name of an operator.

    Files have the number in an old field, in a new one, or in both; the package's own accessor overlooks small
    numbers that are only in the new one.
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
        _obstacle(tensor, quantization),
    )


def _obstacle(tensor: Table, quantization: Table) -> str:
    if tensor.IsVariable():
        return "is a variable, which keeps its value between executions"
    if tensor.Sparsity():
        return "is stored sparsely"
    if quantization and quantization.DetailsType():
        return "has quantisation of a custom kind"
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
    """Names of the single numbers and of the vectors in an options table.

    The generated classes have a method without arguments for each number, and `...AsNumpy` for each vector.
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
    """A vector of the flatbuffer as a tuple; the library gives the number 0 for one that is absent."""
    return () if isinstance(vector, int) else tuple(vector.tolist())


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_OPERATORS = _names(tflite.BuiltinOperator)
_OPTIONS = _names(tflite.BuiltinOptions)
