"""The registry of rules for shapes, and their interface to one operator.

A rule returns the shapes of the outputs in order. It returns None, or raises one of EVALUATION_ERRORS, for what it
cannot infer; the outputs then keep the shapes of the file.

    @shapes(BuiltinOperator.PACK)
    def pack(call: ShapeCall) -> Shapes:
        shape = call.shape(0)
        axis = call.axis(call.option("Axis", 0), len(shape) + 1)
        return [(*shape[:axis], len(call.operator.inputs), *shape[axis:])]
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nnhal.tflite.folding.evaluator import ConstantCall

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Sequence[Shape] | None
Rule: TypeAlias = Callable[["ShapeCall"], Shapes]

RULES: dict[int, Rule] = {}
"""Every registered rule, by `tflite.BuiltinOperator`."""


def shapes(*operators: int) -> Callable[[Rule], Rule]:
    """Register a rule for `tflite.BuiltinOperator` codes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


class ShapeCall(ConstantCall):
    """An operator whose inputs have known shapes. Some inputs may be constants."""

    def shape(self, position: int) -> Shape:
        """Return the shape of an input."""
        return self.tensor(position).shape

    def shapes(self) -> list[Shape]:
        """Return the shapes of all inputs."""
        return [self.shape(i) for i in range(len(self.operator.inputs))]

    @staticmethod
    def axis(axis: int, rank: int) -> int:
        """Return an axis from 0 to rank - 1.

        Raises:
            ValueError: it is out of range.
        """
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of range for rank {rank}")
        return axis % rank
