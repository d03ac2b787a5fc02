"""What is known of a graph before it runs: the shapes of its operands, and calls of which no values are known.

The shape rules of `driver.operations` are run on shapes alone; where a rule needs a value that is not constant, nothing
is known. Shapes and refusals of `CpuRef` are thereby those of this backend as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from driver.graph import Graph, OperationView
from driver.operations import SHAPE_RULES, infer
from driver.operations.call import Call, Shape
from driver.operations.shape import MAX_TENSOR_BYTES
from nnhal.errors import HalError
from nnhal.types import DTYPES, AnyArray, OperandLifeTime, is_tensor

Shapes = Mapping[int, Shape]
"""Shapes by operand."""

CHECKED_BY_ENGINE: dict[int, str] = {}
"""Arguments whose values only the rule checks, and the engine as well: shapes do not depend on them.

By operation type; the converters are registered with them.
"""


class Refused(Exception):
    """The engine cannot do something with the meaning that NNAPI gives it.

    Args:
        reason: in words that the owner of a model can act on.
        nearest: the nearest signature that would be taken, or "".
    """

    def __init__(self, reason: str, nearest: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.nearest = nearest


class KnownCall(Call):
    """A run of an operation of which shapes are known, and of values only the constants."""

    __slots__ = ()

    def __init__(self, view: OperationView, shapes: Shapes) -> None:
        values: dict[int, AnyArray | None] = {}
        for operand in (*view.operation.inputs, *view.operation.outputs):
            constant = view.graph.constants.get(operand)
            values[operand] = constant if constant is not None else _dummy(view.graph, operand, shapes)
        super().__init__(view, values, {})

    def array(self, name: str) -> AnyArray:
        """The value of an argument that is constant.

        Raises:
            Refused: it is not constant.
        """
        if self.view.positions[name] in self.view.graph.constants:
            return self._value(name)
        if CHECKED_BY_ENGINE.get(self.view.type) == name:
            return self._value(name)
        raise Refused(f"{name} is not constant", f"a constant {name}")


def _dummy(graph: Graph, operand: int, shapes: Shapes) -> AnyArray | None:
    described = graph.operands[operand]
    if operand not in shapes or described.lifetime == OperandLifeTime.NO_VALUE:
        return None
    return np.broadcast_to(np.zeros((), DTYPES[described.type]), shapes[operand])


def inferred(
    view: OperationView, shapes: Shapes, declared: Sequence[Shape], tensor_bytes: int = MAX_TENSOR_BYTES
) -> tuple[KnownCall, list[Shape]]:
    """The call of an operation whose inputs have these shapes, and the shapes of its outputs.

    Raises:
        HalError: whatever `driver.operations.infer` holds is broken.
        Refused: that depends on values that are not constant.
    """
    call = KnownCall(view, shapes)
    return call, infer(call, declared, tensor_bytes)


@dataclass(frozen=True, slots=True)
class Statics:
    """Shapes that are known of a graph.

    Attributes:
        shapes: by operand. Where a first dimension is unknown (the batch), the shape for a batch of 1.
        varying: operands whose shape follows the batch.
        calls: by number of the operation, where its outputs are known.
    """

    shapes: Shapes
    varying: frozenset[int]
    calls: Mapping[int, KnownCall]


def statics(graph: Graph) -> Statics:
    """What is known of a graph's shapes, worked out once."""
    found = graph.notes.get(statics)
    if not isinstance(found, Statics):
        found = graph.notes[statics] = _statics(graph)
    return found


def _statics(graph: Graph) -> Statics:
    shapes: dict[int, Shape] = {}
    varying: set[int] = set()
    for index, operand in enumerate(graph.operands):
        if operand.type not in DTYPES or operand.lifetime == OperandLifeTime.NO_VALUE:
            continue
        dimensions = operand.dimensions
        if not is_tensor(operand.type) or (dimensions and 0 not in dimensions) or index in graph.constants:
            shapes[index] = dimensions
        elif operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT and dimensions and 0 not in dimensions[1:]:
            shapes[index] = (1, *dimensions[1:])
            varying.add(index)
    calls = {view.index: call for view in graph.operations if (call := _follow(view, shapes, varying))}
    return Statics(shapes, frozenset(varying), calls)


def _follow(view: OperationView, shapes: dict[int, Shape], varying: set[int]) -> KnownCall | None:
    """Adds the shapes of an operation's outputs, if they can be known."""
    follows = not varying.isdisjoint(view.operation.inputs)
    if view.type not in SHAPE_RULES or view.arguments is None:
        return None
    operands = view.graph.operands
    declared = [operands[o].dimensions for o in view.operation.outputs]
    try:
        call, found = inferred(view, shapes, declared)
    except (HalError, Refused):
        return None
    for output, shape in zip(view.operation.outputs, found, strict=True):
        shapes[output] = shape
        if follows:
            varying.add(output)
    return call
