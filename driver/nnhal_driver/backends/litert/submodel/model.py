"""Parsed sub-models: immutable values without offsets or indices into a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.types import AnyArray, Bytes

ITEM_BITS = {
    "FLOAT32": 32,
    "FLOAT16": 16,
    "INT32": 32,
    "UINT8": 8,
    "INT64": 64,
    "BOOL": 8,
    "INT16": 16,
    "INT8": 8,
    "FLOAT64": 64,
    "UINT32": 32,
    "UINT16": 16,
    "INT4": 4,
    "COMPLEX64": 64,
}
"""Types of tensors that the writer of models knows, with the bits of an element."""


class InvalidSubModel(ValueError):
    """A sub-model is damaged, or LiteRT's kernels cannot compute it. The message names the operator or the field."""


@dataclass(frozen=True, slots=True, eq=False)
class SubModelQuantization:
    """Quantization of a tensor.

    Attributes:
        scales: float32; one for the tensor, or one for each index of dimension `dimension`.
        zero_points: int64, as many as scales.
        dimension: the quantized dimension.
    """

    scales: AnyArray
    zero_points: AnyArray
    dimension: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SubModelTensor:
    """A tensor.

    Attributes:
        type: name in TFLite's TensorType.
        shape: the dimensions.
        data: the bytes of a constant, a view of the parsed data; otherwise None.
        quantization: None if the values are not quantized.
        is_variable: whether an operator keeps state in the tensor.
    """

    type: str
    shape: tuple[int, ...]
    data: Bytes | None = None
    quantization: SubModelQuantization | None = None
    is_variable: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def byte_size(self) -> int:
        """Size in bytes, as LiteRT computes it."""
        return -(-self.elements * ITEM_BITS[self.type] // 8)

    def values(self) -> AnyArray:
        """Return the elements of a constant, of any type but INT4."""
        assert self.data is not None
        return np.frombuffer(self.data, DTYPES[self.type]).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class SubModelOperator:
    """An operator.

    Attributes:
        name: name in TFLite's BuiltinOperator, for example CONV_2D; the number of an unknown one.
        version: version of the operator in the file.
        inputs: numbers of tensors; -1 for an omitted one.
        outputs: numbers of tensors.
        options_type: name of the options table, for example Conv2DOptions; "" for none.
        options: all fields of the options table by their names in the schema, for example `stride_w`.
        intermediates: numbers of tensors that only carry quantization.
        custom_code: the name of a custom operator, otherwise "".
        custom_options: the options of a custom operator.
    """

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: str
    options: Mapping[str, object]
    intermediates: tuple[int, ...] = ()
    custom_code: str = ""
    custom_options: Bytes | None = None

    @property
    def kind(self) -> str:
        """The name of the rule: of the builtin or of the custom operator."""
        return self.custom_code or self.name


@dataclass(frozen=True, slots=True, eq=False)
class SubModelGraph:
    """A subgraph: its tensors, the numbers of its inputs and outputs, and its operators in the order of execution.

    All numbers of tensors are in range.
    """

    tensors: tuple[SubModelTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[SubModelOperator, ...]

    def inputs_of(self, operator: SubModelOperator) -> list[SubModelTensor | None]:
        """Return the inputs of an operator; None for an omitted one."""
        return [self.tensors[i] if i >= 0 else None for i in operator.inputs]


@dataclass(frozen=True, slots=True, eq=False)
class SubModel:
    """A sub-model. Subgraph 0 is the main one; IF and WHILE call the others.

    Attributes:
        is_complete: whether it has nothing that these values do not represent.
    """

    graphs: tuple[SubModelGraph, ...]
    is_complete: bool = True

    @property
    def main(self) -> SubModelGraph:
        """The main subgraph."""
        return self.graphs[0]

    @property
    def inputs(self) -> tuple[SubModelTensor, ...]:
        """Inputs of the main subgraph."""
        return tuple(self.main.tensors[i] for i in self.main.inputs)

    @property
    def outputs(self) -> tuple[SubModelTensor, ...]:
        """Outputs of the main subgraph."""
        return tuple(self.main.tensors[i] for i in self.main.outputs)


def operator_path(graph: int, index: int, name: str) -> str:
    """Return the name of an operator in messages."""
    return f"{f'subgraph {graph}, ' if graph else ''}operator {index} ({name})"
