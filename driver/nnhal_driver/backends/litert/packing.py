"""Flatbuffers of TFLite models. Equal shapes, quantizations and options are written once."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from nnhal_driver.backends.litert.engine import schema
from nnhal_driver.backends.litert.flatbuffer import CHILD, FlatbufferWriter, Table

_SCHEMA_VERSION = 3
_IDENTIFIER = b"TFL3"
_MAX_OLD_CODE = 127
"""Largest operator in the old field of the schema."""
UNPLACED = 1
"""Offset of constants until they are placed. The flatbuffer would omit a 0."""

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Quantization:
    """Quantization of a tensor: one scale, or one for each index of dimension `dimension`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dimension: int = 0


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type of a tensor. `type`: a name in TFLite's TensorType."""

    type: str
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor: its type and shape, the number of its buffer or 0, and whether it keeps its value."""

    spec: TensorSpec
    shape: tuple[int, ...]
    buffer: int
    is_variable: bool


@dataclass(frozen=True, slots=True)
class PackedOperator:
    """An operator: its name, its tensors, and the options table with its fields.

    Attributes:
        custom_code: name of a custom operator, otherwise "".
        custom_options: options of a custom operator.
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


def pack(subgraphs: Sequence[PackedSubgraph], sizes: Sequence[int]) -> bytes:
    """Return a model. Its constants are outside of it, and not placed yet.

    Args:
        subgraphs: the subgraphs.
        sizes: bytes of each constant, in the order of the buffers, which begin with 1.
    """
    return _Packer().pack(subgraphs, sizes)


_TABLES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Model": {"version": (0, "L"), "operator_codes": (1, CHILD), "subgraphs": (2, CHILD), "buffers": (4, CHILD)},
    "OperatorCode": {
        "deprecated_builtin_code": (0, "b"),
        "custom_code": (1, CHILD),
        "version": (2, "i"),
        "builtin_code": (3, "i"),
    },
    "SubGraph": {"tensors": (0, CHILD), "inputs": (1, CHILD), "outputs": (2, CHILD), "operators": (3, CHILD)},
    "Tensor": {
        "shape": (0, CHILD),
        "type": (1, "b"),
        "buffer": (2, "L"),
        "quantization": (4, CHILD),
        "is_variable": (5, "?"),
        "has_rank": (8, "?"),
    },
    "QuantizationParameters": {"scale": (2, CHILD), "zero_point": (3, CHILD), "quantized_dimension": (6, "i")},
    "Operator": {
        "opcode_index": (0, "L"),
        "inputs": (1, CHILD),
        "outputs": (2, CHILD),
        "builtin_options_type": (3, "B"),
        "builtin_options": (4, CHILD),
        "custom_options": (5, CHILD),
        "intermediates": (8, CHILD),
    },
    "Buffer": {"offset": (1, "Q"), "size": (2, "Q")},
}
"""Slot and format of the fields of the schema that models use."""

Values = dict[str, int | float | bool]


@cache
def _table(kind: str, fields: tuple[str, ...]) -> Table:
    """Return the layout of a table with some of its fields."""
    return Table({name: _TABLES[kind][name] for name in fields})


class _Packer:
    def __init__(self) -> None:
        self._schema: Any = schema()
        self._writer = FlatbufferWriter()
        self._known: dict[Hashable, int] = {}
        self._codes: dict[tuple[str, str, int], int] = {}

    def pack(self, subgraphs: Sequence[PackedSubgraph], sizes: Sequence[int]) -> bytes:
        graphs = [self._subgraph(subgraph) for subgraph in subgraphs]
        placed: Iterable[Values] = ({"offset": UNPLACED, "size": size} for size in sizes)
        fields: Values = {
            "version": _SCHEMA_VERSION,
            "operator_codes": self._writer.children([self._operator_code(*code) for code in self._codes]),
            "subgraphs": self._writer.children(graphs),
            "buffers": self._writer.children([self._table("Buffer", values) for values in ({}, *placed)]),
        }
        return self._writer.finish(self._table("Model", fields), _IDENTIFIER)

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
            "type": getattr(self._schema.TensorType, tensor.spec.type),
            "buffer": tensor.buffer,
            "has_rank": True,
        }
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
            self._known[quantization] = self._table("QuantizationParameters", fields)
        return self._known[quantization]

    def _operator(self, operator: PackedOperator) -> int:
        fields: Values = {
            "opcode_index": self._codes.setdefault(operator.code, len(self._codes)),
            "inputs": self._int32(operator.inputs),
            "outputs": self._int32(operator.outputs),
        }
        if operator.options:
            fields["builtin_options_type"] = getattr(self._schema.BuiltinOptions, operator.options)
            fields["builtin_options"] = self._options(operator)
        if operator.intermediates:
            fields["intermediates"] = self._int32(operator.intermediates)
        if operator.custom_options:
            fields["custom_options"] = self._writer.vector("B", operator.custom_options)
        return self._table("Operator", fields)

    def _options(self, operator: PackedOperator) -> int:
        key = (operator.options, tuple((name, _hashable(value)) for name, value in operator.fields.items()))
        if key not in self._known:
            self._known[key] = self._writer.embed(_pack_options(*key))
        return self._known[key]

    def _operator_code(self, name: str, custom_name: str, version: int) -> int:
        number = getattr(self._schema.BuiltinOperator, name)
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


@lru_cache(maxsize=256)
def _pack_options(kind: str, fields: tuple[tuple[str, Hashable], ...]) -> bytes:
    """Return an options table as a flatbuffer of its own."""
    import flatbuffers  # noqa: PLC0415 - comes with the engine

    values = {name: list(value) if isinstance(value, tuple) else value for name, value in fields}
    builder = flatbuffers.Builder(64)
    builder.Finish(getattr(schema(), f"{kind}T")(**values).Pack(builder))
    return bytes(builder.Output())
