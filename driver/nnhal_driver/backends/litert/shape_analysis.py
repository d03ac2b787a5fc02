"""Static analysis of a graph: the shapes of its operands before execution.

It runs the shape rules of `nnhal_driver.operations` on shapes and constants alone. If a rule needs a value that is not
constant, the shape is unknown. CpuRef uses the same rules, so both backends infer the same shapes. The results of
operations on constants are constants (`litert.folding`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nnhal.errors import HalError
from nnhal.types import DTYPES, AnyArray, OperandLifeTime, byte_size, is_extension, is_tensor
from nnhal_driver.backends.litert.folding import GraphConstants
from nnhal_driver.graph import Graph, OperationView
from nnhal_driver.operations import SHAPE_RULES, infer
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES
from nnhal_driver.validation.rank import MAX_RANK

Shapes = Mapping[int, Shape]
"""Shapes by operand."""

CHECKED_BY_ENGINE: dict[int, str] = {}
"""Arguments whose values a shape rule only checks, by operation type. The engine checks them too.

Shapes do not depend on these values. The decorator `converter` fills the table.
"""


class Unsupported(Exception):
    """The engine cannot compute something as NNAPI defines it.

    Args:
        reason: why, in words that help the owner of a model.
        nearest: the nearest supported signature, or "".
    """

    def __init__(self, reason: str, nearest: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.nearest = nearest


class StaticCall(OperationCall):
    """Call of an operation with known shapes, of whose values only constants are known."""

    __slots__ = ("_constants",)

    def __init__(self, view: OperationView, shapes: Shapes, constants: GraphConstants) -> None:
        self._constants = constants
        values: dict[int, AnyArray | None] = {}
        for operand in (*view.operation.inputs, *view.operation.outputs):
            constant = view.graph.constants.get(operand)
            values[operand] = constant if constant is not None else _placeholder(view.graph, operand, shapes)
        super().__init__(view, values, {})

    def array(self, name: str) -> AnyArray:
        """Return the value of a constant argument.

        Raises:
            Unsupported: the argument is not constant.
        """
        position = self.view.positions[name]
        if position in self._constants:
            return self._constants.array(position)
        if CHECKED_BY_ENGINE.get(self.view.type) == name:
            return self._value(name)
        raise Unsupported(f"{name} is not constant", f"a constant {name}")


def _placeholder(graph: Graph, index: int, shapes: Shapes) -> AnyArray | None:
    """Return an array of the operand's shape without memory, or None."""
    operand = graph.operands[index]
    if index not in shapes or operand.lifetime == OperandLifeTime.NO_VALUE:
        return None
    return _zeros(operand.type, tuple(shapes[index]))


@lru_cache(1024)
def _zeros(type_: int, shape: Shape) -> AnyArray:
    return np.broadcast_to(np.zeros((), DTYPES[type_]), shape)


def infer_call(
    view: OperationView, shapes: Shapes, constants: GraphConstants, tensor_bytes: int = MAX_TENSOR_BYTES
) -> tuple[StaticCall, list[Shape]]:
    """Return the call of an operation whose inputs have these shapes, and the shapes of its outputs.

    Raises:
        HalError: raised by `nnhal_driver.operations.infer`.
        Unsupported: the shapes depend on values that are not constant.
    """
    call = StaticCall(view, shapes, constants)
    return call, infer(call, [view.graph.operands[o].dimensions for o in view.operation.outputs], tensor_bytes)


@dataclass(frozen=True, slots=True)
class StaticShapes:
    """Known shapes of a graph.

    Attributes:
        shapes: shapes by operand. If the first dimension (the batch) is unknown, the shape for a batch of 1.
        varying: operands whose shape depends on the batch.
        calls: calls by index of the operation, if the shapes of its outputs are known.
        constants: constants, with the results of operations on constants.
    """

    shapes: Shapes
    varying: frozenset[int]
    calls: Mapping[int, StaticCall]
    constants: GraphConstants


def analyze_shapes(graph: Graph) -> StaticShapes:
    """Return the known shapes of a graph. The result is cached in the graph."""
    cached = graph.annotations.get(analyze_shapes)
    if not isinstance(cached, StaticShapes):
        cached = graph.annotations[analyze_shapes] = _analyze(graph)
    return cached


def _analyze(graph: Graph) -> StaticShapes:
    shapes: dict[int, Shape] = {}
    varying: set[int] = set()
    for index, operand in enumerate(graph.operands):
        dimensions = operand.dimensions
        if is_extension(operand.type) and dimensions and 0 not in dimensions:
            shapes[index] = dimensions
        if operand.type not in DTYPES or operand.lifetime == OperandLifeTime.NO_VALUE:
            continue
        if not is_tensor(operand.type) or index in graph.constants:
            shapes[index] = dimensions
            continue
        is_varying = operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT and dimensions[:1] == (0,)
        shape = (1, *dimensions[1:]) if is_varying else dimensions
        # numpy has no arrays of some shapes that an execution rejects
        can_exist = len(shape) <= MAX_RANK and byte_size(operand.type, shape) <= MAX_TENSOR_BYTES
        if shape and 0 not in shape and can_exist:
            shapes[index] = shape
            if is_varying:
                varying.add(index)
    constants, calls = GraphConstants(graph), {}
    for view in graph.operations:
        graph.check()
        if call := _analyze_operation(view, shapes, varying, constants):
            calls[view.index] = call
    constants.forget()
    return StaticShapes(shapes, frozenset(varying), calls, constants)


def _analyze_operation(
    view: OperationView, shapes: dict[int, Shape], varying: set[int], constants: GraphConstants
) -> StaticCall | None:
    """Add the shapes of an operation's outputs and return its call, or None if they are unknown."""
    depends_on_batch = not varying.isdisjoint(view.operation.inputs)
    if view.type not in SHAPE_RULES or view.arguments is None or SHAPE_RULES[view.type].slow:
        return None
    try:
        call, output_shapes = infer_call(view, shapes, constants)
    except (HalError, Unsupported):
        return None
    for output, shape in zip(view.operation.outputs, output_shapes, strict=True):
        shapes[output] = shape
        if depends_on_batch:
            varying.add(output)
    constants.fold(view, output_shapes)
    return call
