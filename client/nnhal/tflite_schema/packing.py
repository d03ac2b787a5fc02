"""Flatbuffers of TFLite models. Equal shapes, quantizations and options are written once."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nnhal.tflite_schema.enumerations import BuiltinOperator, TensorType
from nnhal.tflite_schema.tables import NEWER_OPTIONS_NUMBERS, OPTIONS_NUMBERS, SCALARS, TABLES, SchemaField
from nnhal.tflite_schema.writer import CHILD, FlatbufferWriter, Table

IDENTIFIER = b"TFL3"
"""Identifier of the files of models."""
VERSION = 3
"""Version of the schema."""
_MAX_OLD_CODE = 127
"""Largest operator in the old field of the schema."""
UNPLACED = 1
"""Offset of constants until they are placed. The flatbuffer would omit a 0."""
_OPTIONS_NUMBERS = {**OPTIONS_NUMBERS, **NEWER_OPTIONS_NUMBERS}
_BLOCKWISE = 2
"""Number of BlockwiseQuantization in QuantizationDetails."""

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Quantization:
    """Quantization of a tensor: one scale, or one for each index of dimension `dimension`.

    Attributes:
        blocks: the tensor with a scale for each block of elements, that with their zero points or -1, and the number of
            elements of a block; () without blocks.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dimension: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type of a tensor. `type`: a name in TFLite's TensorType."""

    type: str
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor: its type and shape, the number of its buffer or 0, and whether it keeps its value.

    The shape has -1 for unknown dimensions.
    """

    spec: TensorSpec
    shape: tuple[int, ...]
    buffer: int
    is_variable: bool


@dataclass(frozen=True, slots=True)
class PackedOperator:
    """An operator: its name, its tensors, and the options table with its fields.

    Attributes:
        options: name of the options table, or "".
        fields: its fields by their names in the schema. None is an absent one.
        custom_code: name of a custom operator, otherwise "".
        version: version of the operator. The engine has no kernels for the first versions of some.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    fields: Fields
    intermediates: tuple[int, ...] = ()
    custom_code: str = ""
    custom_options: bytes = b""
    version: int = 1

    @property
    def code(self) -> tuple[str, str, int]:
        """Name, custom name and version: operators with the same ones share an operator code."""
        return self.name, self.custom_code, self.version


@dataclass(frozen=True, slots=True)
class PackedSubgraph:
    """A subgraph: its tensors and operators, and the numbers of its inputs and outputs."""

    tensors: Sequence[PackedTensor]
    operators: Sequence[PackedOperator]
    inputs: Sequence[int]
    outputs: Sequence[int]


def pack(subgraphs: Sequence[PackedSubgraph], constants: Sequence[int | memoryview]) -> bytes:
    """Return a model.

    `constants` are in the order of the buffers, which begin with 1: the bytes of each one, or the size of one that is
    outside of the flatbuffer and not placed yet.
    """
    return _Packer().pack(subgraphs, constants)


Values = dict[str, Any]


@cache
def _table(kind: str, names: tuple[str, ...]) -> Table:
    """Return the layout of a table with some of its fields."""
    slots = {field.name: (slot, _format(field)) for slot, field in enumerate(TABLES[kind])}
    return Table({name: slots[name] for name in names})


def _format(field: SchemaField) -> str:
    return CHILD if field.is_vector else SCALARS.get(field.type, CHILD)


class _Packer:
    def __init__(self) -> None:
        self._writer = FlatbufferWriter()
        self._known: dict[Hashable, int] = {}
        self._codes: dict[tuple[str, str, int], int] = {}

    def pack(self, subgraphs: Sequence[PackedSubgraph], constants: Sequence[int | memoryview]) -> bytes:
        buffers = [self._table("Buffer", {}), *map(self._buffer, constants)]
        graphs = [self._subgraph(subgraph) for subgraph in subgraphs]
        fields: Values = {
            "version": VERSION,
            "operator_codes": self._writer.children([self._operator_code(*code) for code in self._codes]),
            "subgraphs": self._writer.children(graphs),
            "buffers": self._writer.children(buffers),
        }
        return self._writer.finish(self._table("Model", fields), IDENTIFIER)

    def _buffer(self, constant: int | memoryview) -> int:
        if isinstance(constant, int):
            return self._table("Buffer", {"offset": UNPLACED, "size": constant})
        return self._table("Buffer", {"data": self._writer.blob(constant)})

    def _subgraph(self, subgraph: PackedSubgraph) -> int:
        fields: Values = {
            "tensors": self._writer.children([self._tensor(tensor) for tensor in subgraph.tensors]),
            "inputs": self._int32(subgraph.inputs),
            "outputs": self._int32(subgraph.outputs),
            "operators": self._writer.children([self._operator(operator) for operator in subgraph.operators]),
        }
        return self._table("SubGraph", fields)

    def _tensor(self, tensor: PackedTensor) -> int:
        fields: Values = {
            "shape": self._int32(tensor.shape),
            "type": TensorType[tensor.spec.type],
            "buffer": tensor.buffer,
            "has_rank": True,
        }
        if -1 in tensor.shape:
            fields["shape_signature"] = fields["shape"]
            fields["shape"] = self._int32([1 if length == -1 else length for length in tensor.shape])
        if (quantization := tensor.spec.quantization) is not None:
            fields["quantization"] = self._quantization(quantization)
        if tensor.is_variable:
            fields["is_variable"] = True
        return self._table("Tensor", fields)

    def _quantization(self, quantization: Quantization) -> int:
        if quantization not in self._known:
            fields: Values = {
                "scale": self._writer.vector("f", quantization.scales),
                "zero_point": self._writer.vector("q", quantization.zero_points),
                "quantized_dimension": quantization.dimension,
            }
            if quantization.blocks:
                names = ("scales", "zero_points", "block_size")
                fields["details_type"] = _BLOCKWISE
                fields["details"] = self._table(
                    "BlockwiseQuantization", dict(zip(names, quantization.blocks, strict=True))
                )
            self._known[quantization] = self._table("QuantizationParameters", fields)
        return self._known[quantization]

    def _operator(self, operator: PackedOperator) -> int:
        fields: Values = {
            "opcode_index": self._codes.setdefault(operator.code, len(self._codes)),
            "inputs": self._int32(operator.inputs),
            "outputs": self._int32(operator.outputs),
        }
        if operator.options:
            union = "builtin_options" if operator.options in OPTIONS_NUMBERS else "builtin_options_2"
            fields[f"{union}_type"] = _OPTIONS_NUMBERS[operator.options]
            fields[union] = self._options(operator)
        if operator.intermediates:
            fields["intermediates"] = self._int32(operator.intermediates)
        if operator.custom_options:
            fields["custom_options"] = self._writer.blob(operator.custom_options)
        return self._table("Operator", fields)

    def _options(self, operator: PackedOperator) -> int:
        key = (operator.options, tuple((name, _hashable(value)) for name, value in operator.fields.items()))
        if key not in self._known:
            schema = {field.name: field for field in TABLES[operator.options]}
            present = ((schema[name], value) for name, value in operator.fields.items() if value is not None)
            values = {
                field.name: self._option(field, value)
                for field, value in present
                if field.is_vector or value != field.default
            }
            self._known[key] = self._table(operator.options, values)
        return self._known[key]

    def _option(self, field: SchemaField, value: Any) -> Any:
        if field.is_vector:
            return self._writer.vector(SCALARS[field.type], tuple(value))
        return self._writer.string(value.encode()) if field.type == "string" else value

    def _operator_code(self, name: str, custom_name: str, version: int) -> int:
        number = BuiltinOperator[name]
        fields: Values = {
            "deprecated_builtin_code": min(number, _MAX_OLD_CODE),
            "version": version,
            "builtin_code": number,
        }
        if custom_name:
            fields["custom_code"] = self._writer.string(custom_name.encode())
        return self._table("OperatorCode", fields)

    def _int32(self, values: Sequence[int]) -> int:
        numbers = tuple(values)
        if numbers not in self._known:
            self._known[numbers] = self._writer.vector("i", numbers)
        return self._known[numbers]

    def _table(self, kind: str, values: Values) -> int:
        return self._writer.table(_table(kind, tuple(values)), values)


def _hashable(value: object) -> Hashable:
    """Return a value of an options table as a key: a number, a string, or the elements of a vector."""
    if isinstance(value, np.ndarray | list):
        return tuple(value)
    assert isinstance(value, Hashable)
    return value
