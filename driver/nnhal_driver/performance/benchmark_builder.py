"""Builder of benchmark models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nnhal.types import DTYPES, DataLocation, Operand, OperandLifeTime, Operation, OperationType, Subgraph, is_tensor
from nnhal.types import OperandType as T

Shape = Sequence[int]

IMAGE = (1, 16, 16, 16)
ROWS = (64, 64)
NONE, SAME = 0, 1
"""No fused activation, and the padding scheme that keeps the size."""


class BenchmarkBuilder:
    """Builder of a subgraph. The values of constants are appended to `data`, which the subgraphs of a model share."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: list[int] = []

    def input(self, type_: T, shape: Shape, **quantization: float) -> int:
        """Add an input and return its index."""
        self._inputs.append(self._add(type_, shape, OperandLifeTime.SUBGRAPH_INPUT, DataLocation(), quantization))
        return self._inputs[-1]

    def constant(self, type_: T, values: object, **quantization: float) -> int:
        """Add a constant and return its index."""
        array = np.asarray(values, DTYPES[type_])
        self._data += bytes(-len(self._data) % 8)
        location = DataLocation(0, len(self._data), array.nbytes)
        self._data += array.tobytes()
        return self._add(type_, array.shape, OperandLifeTime.CONSTANT_COPY, location, quantization)

    def reference(self, number: int) -> int:
        """Add an operand for a referenced subgraph of the model."""
        return self._add(T.SUBGRAPH, (), OperandLifeTime.SUBGRAPH, DataLocation(0, number), {})

    def apply(self, type_: OperationType, inputs: Sequence[int], output: T, shape: Shape, **quantization: float) -> int:
        """Add an operation and return the index of its output."""
        index = self._add(output, shape, OperandLifeTime.TEMPORARY_VARIABLE, DataLocation(), quantization)
        self._operations.append(Operation(type_, tuple(inputs), (index,)))
        return index

    def build(self, *outputs: int) -> Subgraph:
        """Return the subgraph with these outputs."""
        for i in outputs:
            self._operands[i] = replace(self._operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        return Subgraph(tuple(self._operands), tuple(self._operations), tuple(self._inputs), outputs)

    def _add(
        self,
        type_: T,
        shape: Shape,
        lifetime: OperandLifeTime,
        location: DataLocation,
        quantization: Mapping[str, float],
    ) -> int:
        scale, zero_point = float(quantization.get("scale", 0.0)), int(quantization.get("zero_point", 0))
        dimensions = tuple(shape) if is_tensor(type_) else ()
        self._operands.append(Operand(type_, dimensions, scale, zero_point, lifetime, location))
        return len(self._operands) - 1

    @property
    def inputs(self) -> list[Operand]:
        """Operands of the inputs."""
        return [self._operands[i] for i in self._inputs]

    def describe(self, index: int) -> Operand:
        """Return an operand."""
        return self._operands[index]
