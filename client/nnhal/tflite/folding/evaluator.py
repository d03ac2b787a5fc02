"""The registry of evaluators, and their interface to one operator whose inputs are constants.

An evaluator returns the outputs in order. It returns None, or raises one of INFERENCE_ERRORS, for what it cannot
compute; the operator then stays in the graph.

    @evaluator(BuiltinOperator.TRANSPOSE)
    def transpose(call: GraphCall) -> Outputs:
        return [call.array(0).transpose(call.array(1).tolist())]
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnhal.tflite.graph import TENSOR_DTYPES, Operator, Tensor, TfliteGraph
from nnhal.tflite_schema.shapes.rule import Shape, ShapeCall
from nnhal.types import AnyArray

Outputs: TypeAlias = Sequence[AnyArray] | None
Evaluator: TypeAlias = Callable[["GraphCall"], Outputs]

MAX_ELEMENTS = 2**28
"""Largest result of evaluators that enlarge their inputs."""
EVALUATORS: dict[int, Evaluator] = {}
"""Every registered evaluator, by `BuiltinOperator`."""


def evaluator(*operators: int) -> Callable[[Evaluator], Evaluator]:
    """Register an evaluator for `BuiltinOperator` codes."""

    def register(function: Evaluator) -> Evaluator:
        EVALUATORS.update(dict.fromkeys(operators, function))
        return function

    return register


class GraphCall(ShapeCall):
    """An operator of a graph. Evaluators and the rules of shapes read the inputs that are constants."""

    def __init__(self, graph: TfliteGraph, operator: Operator) -> None:
        outputs = [graph.tensors[index].shape for index in operator.outputs]
        super().__init__(operator.name, len(operator.inputs), outputs)
        self.graph = graph
        self.operator = operator

    def tensor(self, position: int) -> Tensor:
        """Return the tensor of an input."""
        return self.graph.tensors[self.operator.inputs[position]]

    def shape(self, position: int) -> Shape:
        """Return the shape of an input."""
        return self.tensor(position).shape

    def has(self, position: int) -> bool:
        """Return whether an optional input is present."""
        return position < len(self.operator.inputs) and self.operator.inputs[position] >= 0

    def array(self, position: int) -> AnyArray:
        """Return the value of an input, which must be a constant."""
        return self.graph.values(self.operator.inputs[position])

    def arrays(self) -> list[AnyArray]:
        """Return the values of all inputs."""
        return [self.array(i) for i in range(len(self.operator.inputs))]

    def output(self) -> Tensor:
        """Return the tensor of the first output."""
        return self.graph.tensors[self.operator.outputs[0]]

    def dtype(self) -> np.dtype[Any]:
        """Return the type of the elements of the first output."""
        return TENSOR_DTYPES[self.output().type]

    def option(self, name: str, default: Any) -> Any:
        """Return a field of the options, or `default` if the operator has no options."""
        return self.operator.options.get(name, default)
