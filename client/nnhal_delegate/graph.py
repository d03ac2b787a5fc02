"""Graph of a LiteRT program, in the form of the importer of .tflite files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nnhal.tflite.graph import Operator, SparseDimension, Sparsity, Tensor, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.types import Bytes
from nnhal_delegate.parameters import read_options

_ALIGNMENT = 64
_AFFINE = 1
"""Largest kind of quantization that scales and zero points describe."""
_OPERATORS = frozenset(BuiltinOperator)
_HOST_TYPES = (TensorType.STRING, TensorType.RESOURCE, TensorType.VARIANT)
_CALLS = ("IF", "WHILE", "CALL", "CALL_ONCE", "DELEGATE")
_RANDOM = ("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")
_NEWER = [code for code in BuiltinOperator if code.name.startswith("STABLEHLO_")]
_NEWER += [BuiltinOperator.DILATE, BuiltinOperator.REDUCE_WINDOW]
_REFUSED: Mapping[int, str] = {
    **{BuiltinOperator[name]: "runs another subgraph" for name in _CALLS},
    **{BuiltinOperator[name]: "its results are random" for name in _RANDOM},
    **dict.fromkeys(_NEWER, "has options of a newer kind"),
}
"""Operators that LiteRT runs, and why. Files have options of the newer kind in `builtin_options_2`."""


@dataclass(slots=True)
class HostGraph:
    """Graph under construction: its tensors and nodes are added in order.

    Attributes:
        refusals: why a node cannot run on any device, by its number.
    """

    tensors: list[Tensor] = field(default_factory=list)
    operators: dict[int, Operator] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _constants: list[Bytes] = field(default_factory=list)
    _size: int = 0
    _data: Bytes | None = None

    def add_tensor(self, name: str, constant: memoryview | None, quantization: int, **fields: Any) -> None:
        """Add a tensor with some fields of `Tensor`.

        A constant must stay where it is until the first partition is made.
        """
        index, data = len(self.tensors), None
        if constant is not None:
            padding = -self._size % _ALIGNMENT
            data = self._size + padding, self._size + padding + len(constant)
            self._constants += [np.zeros(padding, np.uint8), np.frombuffer(constant, np.uint8)]
            self._size = data[1]
        name = f"{name} {index}" if name in self._names else name
        self._names.add(name)
        unsupported = "has quantization of a custom kind" if quantization > _AFFINE else ""
        self.tensors.append(Tensor(index, name, data=data, unsupported=unsupported, **fields))

    def set_sparsity(self, order: tuple[int, ...], blocks: tuple[int, ...]) -> None:
        """Make the last tensor a sparse one."""
        self.tensors[-1] = replace(self.tensors[-1], sparsity=Sparsity(order, blocks, ()))

    def add_sparse_dimension(self, dimension: SparseDimension) -> None:
        """Add a dimension to the layout of the last tensor."""
        sparsity = self.tensors[-1].sparsity
        assert sparsity is not None
        layout = replace(sparsity, dimensions=(*sparsity.dimensions, dimension))
        self.tensors[-1] = replace(self.tensors[-1], sparsity=layout)

    def add_node(self, operator: Operator, parameters: int) -> None:
        """Add a node, whose parameter structure is at an address."""
        inputs = [self.tensors[index] for index in operator.inputs if index >= 0]
        name = BuiltinOperator(operator.code).name if operator.code in _OPERATORS else ""
        table, options = read_options(name, operator.version, parameters, [tensor.type for tensor in inputs])
        label = f"CUSTOM {operator.name}" if operator.code == BuiltinOperator.CUSTOM else name
        operator = replace(operator, name=label, options_type=table, options=options)
        self.operators[operator.index] = operator
        if reason := _refusal(operator, [*inputs, *(self.tensors[index] for index in operator.outputs)]):
            self.refusals[operator.index] = reason

    def partition(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> TfliteGraph:
        """Return the graph of some nodes."""
        if self._data is None:
            self._data = np.concatenate(self._constants) if self._constants else np.empty(0, np.uint8)
            self._constants.clear()
        variable = tuple(index for index in inputs if not self.tensors[index].is_constant)
        return TfliteGraph(
            self._data, tuple(self.tensors), tuple(self.operators[node] for node in nodes), variable, tuple(outputs)
        )


def _refusal(operator: Operator, tensors: Sequence[Tensor]) -> str:
    """Return why LiteRT must run a node, or ""."""
    if not operator.name:
        return f"operator code {operator.code} is unknown"
    for tensor in tensors:
        if tensor.is_variable:
            return f"{tensor} keeps its value between executions"
        if tensor.type in _HOST_TYPES:
            return f"{tensor} is {TensorType(tensor.type).name}"
    return _REFUSED.get(operator.code, "")
