"""The registry of rules for shapes, and their interface to one operator.

A rule returns the shapes of the outputs in order. It returns None, or raises one of INFERENCE_ERRORS, for what it
cannot infer.

    @shapes("PACK")
    def pack(call: ShapeCall) -> Shapes:
        shape = call.shape(0)
        axis = call.axis(call.option("axis", 0), len(shape) + 1)
        return [(*shape[:axis], call.inputs, *shape[axis:])]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnhal.types import AnyArray

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Sequence[Shape] | None
Rule: TypeAlias = Callable[["ShapeCall"], Shapes]

UNKNOWN = -1
"""An unknown dimension."""
UNKNOWN_RANK: Shape = (-2,)
"""A shape of which nothing is known."""
INFERENCE_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RuntimeError)
"""Errors of Python and numpy for options and values that an operator cannot have."""
MAX_VALUES = 2**16
"""Most elements of an input that states a shape, axes or sizes."""
_MAX_LENGTH = 2**31 - 1
"""Largest length that a file can state."""

RULES: dict[str, Rule] = {}
"""Every registered rule, by the name of the operator."""


class ShapeError(ValueError):
    """The shapes of the outputs of an operator cannot be inferred."""


def shapes(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators by their names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


class ShapeCall(ABC):
    """An operator whose inputs have known shapes. Some inputs may be constants. `outputs` are the declared shapes."""

    def __init__(self, name: str, inputs: int, outputs: Sequence[Shape]) -> None:
        self.name = name
        self.inputs = inputs
        self.outputs = outputs

    @abstractmethod
    def shape(self, position: int) -> Shape:
        """Return the shape of an input."""

    @abstractmethod
    def has(self, position: int) -> bool:
        """Return whether an optional input is present."""

    @abstractmethod
    def array(self, position: int) -> AnyArray:
        """Return the value of an input.

        Raises:
            ValueError: it is not a constant.
        """

    @abstractmethod
    def option(self, name: str, default: Any) -> Any:
        """Return a field of the options, or `default` if the operator has no options."""

    def shapes(self) -> list[Shape]:
        """Return the shapes of all inputs."""
        return [self.shape(i) for i in range(self.inputs)]

    def integers(self, position: int) -> list[int]:
        """Return the elements of an input as numbers.

        Raises:
            ValueError: it is not a constant, or has more elements than a shape, axes or sizes could have.
        """
        array = self.array(position)
        if array.size > MAX_VALUES:
            raise ValueError(f"input {position} has {array.size} elements")
        return [int(value) for value in array.reshape(-1)]

    @staticmethod
    def axis(axis: int, rank: int) -> int:
        """Return an axis from 0 to rank - 1.

        Raises:
            ValueError: it is out of range.
        """
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of range for rank {rank}")
        return axis % rank


def broadcast_shapes(*operands: Sequence[int]) -> Shape:
    """Return the shape to which shapes broadcast.

    Raises:
        ValueError: they do not.
    """
    try:
        return np.broadcast_shapes(*map(tuple, operands))
    except ValueError:
        *others, last = (str(list(shape)) for shape in operands)
        raise ValueError(f"shapes {', '.join(others)} and {last} do not broadcast") from None


def infer_shapes(call: ShapeCall) -> Sequence[Shape]:
    """Return the shapes of the outputs of an operator, as LiteRT computes them. Some dimensions may be UNKNOWN.

    Raises:
        ShapeError: the operator has no rule, or the shapes do not follow from its inputs and options.
    """
    rule = RULES.get(call.name)
    try:
        inferred = rule(call) if rule else None
    except INFERENCE_ERRORS as error:
        raise ShapeError(str(error)) from error
    if inferred is None or len(inferred) != len(call.outputs):
        raise ShapeError("the shapes of the outputs do not follow from the inputs")
    lengths = [length for shape in inferred for length in shape]
    # a file may give a rule numbers of any type
    if not all(isinstance(length, int | np.integer) and UNKNOWN <= length <= _MAX_LENGTH for length in lengths):
        raise ShapeError(f"the outputs have shapes {[list(shape) for shape in inferred]}")
    return inferred
