"""A validated model in the form that placement, shape rules and backends read: arguments by name, constants as arrays.

Constants are views of the model's memory; what somebody else may still write to is copied.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from driver.validation.place import operand_place
from nnhal.errors import general_failure
from nnhal.operations import SIGNATURES, Arguments
from nnhal.types import (
    DTYPES,
    AnyArray,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
    byte_size,
    elements,
    is_extension,
    operation_name,
)

MAX_RANK = 32
"""Highest rank of a tensor; numpy takes 64, and kernels add some dimensions of their own."""

_BOOLS = (OperandType.BOOL, OperandType.TENSOR_BOOL8)


@dataclass(frozen=True, eq=False)
class OperationView:
    """One operation of a graph.

    Attributes:
        index: its number in the subgraph.
        arguments: operands by the names of the signature; None for operations without one (extensions, IF, WHILE).
        positions: operand index behind each argument name.
    """

    graph: "Graph" = field(repr=False)
    index: int
    operation: Operation
    arguments: Arguments | None
    positions: Mapping[str, int]

    @property
    def type(self) -> int:
        """The operation's type."""
        return self.operation.type

    @property
    def name(self) -> str:
        """How messages call it: "operation 3 of main (CONV_2D)"."""
        return f"operation {self.index} of {self.graph.name} ({operation_name(self.type)})"

    @property
    def extension(self) -> str:
        """Name of the extension that the operation belongs to; "" where it is the HAL's own, or its prefix has none."""
        return self.graph.extension(self.type)

    @property
    def callees(self) -> list[int]:
        """Numbers of the subgraphs that it runs, in the order of its inputs."""
        operands = self.graph.operands
        return [
            operands[i].location.offset + 1
            for i in self.operation.inputs
            if operands[i].lifetime == OperandLifeTime.SUBGRAPH
        ]

    def operand(self, name: str) -> Operand:
        """The operand behind an argument."""
        return self.graph.operands[self.positions[name]]

    def constant(self, name: str) -> AnyArray | None:
        """The value of an argument that is constant, else None."""
        return self.graph.constants.get(self.positions.get(name, -1))


@dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph of a model.

    Attributes:
        number: 0 is main, i + 1 is referenced[i].
        constants: values by operand, read-only; those of extension types as their bytes.
        notes: what backends work out about the graph once, each by an object of its own.
        extensions: names of the extensions that the model uses, by prefix.
    """

    number: int
    subgraph: Subgraph
    constants: Mapping[int, AnyArray]
    notes: dict[object, Any] = field(default_factory=dict, repr=False)
    extensions: Mapping[int, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """How messages call it."""
        return "main" if self.number == 0 else f"referenced subgraph {self.number - 1}"

    def extension(self, type_: int) -> str:
        """Name of the extension that an operand or operation type belongs to; "" where it has none."""
        return self.extensions.get(type_ >> 16, "") if is_extension(type_) else ""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Its operands."""
        return self.subgraph.operands

    @cached_property
    def reads(self) -> Counter[int]:
        """How often each operand is an input of an operation."""
        return Counter(o for operation in self.subgraph.operations for o in operation.inputs)

    @cached_property
    def operations(self) -> tuple[OperationView, ...]:
        """Its operations, with their arguments by name."""
        return tuple(self._view(i, operation) for i, operation in enumerate(self.subgraph.operations))

    def _view(self, index: int, operation: Operation) -> OperationView:
        signature = SIGNATURES.get(operation.type)
        if signature is None:
            return OperationView(self, index, operation, None, {})
        operands = self.subgraph.operands
        bound = signature.bind([operands[i] for i in operation.inputs], [operands[i] for i in operation.outputs])
        assert isinstance(bound, Arguments), f"{operation_name(operation.type)} was not validated: {bound}"
        names = (*bound.inputs, *bound.outputs)
        positions = dict(zip(names, (*operation.inputs, *operation.outputs), strict=True))
        return OperationView(self, index, operation, bound, positions)


@dataclass(frozen=True, eq=False)
class SubgraphView:
    """Operations of one graph that one backend is to run as a unit.

    Attributes:
        operations: in an order of execution.
        inputs: operands that come from outside, constants excepted; each is given to `execute`.
        outputs: operands that are needed outside; `execute` delivers each.
        relaxed: TENSOR_FLOAT32 may be computed in half precision.
    """

    graph: Graph
    operations: Sequence[OperationView]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    relaxed: bool = False

    def part(self, indexes: Sequence[int]) -> "SubgraphView":
        """Some of its operations, in an order of execution."""
        return subgraph_view(self.graph, indexes, self.relaxed)


def graphs(model: Model) -> tuple[Graph, ...]:
    """The subgraphs of a valid model, main first."""
    extensions = {entry.prefix: entry.name for entry in model.extension_name_to_prefix}
    return tuple(
        Graph(number, subgraph, _constants(model, number, subgraph), extensions=extensions)
        for number, subgraph in enumerate(model.subgraphs)
    )


def forget(parts: Sequence[Graph]) -> None:
    """Drops what was made on demand and refers back to its graph, so that memory is freed with the last user.

    Python would find such a circle some time later; constants of hundreds of megabytes should not wait for that.
    """
    for graph in parts:
        graph.notes.clear()
        vars(graph).pop("operations", None)


def callees(graph: Graph) -> list[int]:
    """Numbers of the subgraphs that a graph's operations run."""
    return [number for view in graph.operations for number in view.callees]


def callees_first(parts: Sequence[Graph]) -> list[Graph]:
    """The graphs that main reaches, each after all that it runs itself; main is the last.

    Not recursive: a client may nest as deep as a message is long.
    """
    order: list[Graph] = []
    seen: set[int] = set()
    stack: list[tuple[int, bool]] = [(0, False)]
    while stack:
        number, done = stack.pop()
        if done:
            order.append(parts[number])
        elif number not in seen:
            seen.add(number)
            stack.append((number, True))
            stack += [(callee, False) for callee in callees(parts[number])]
    return order


def subgraph_view(graph: Graph, indexes: Sequence[int], relaxed: bool) -> SubgraphView:
    """The operations `indexes` of a graph, with what they need from outside and what is needed from them."""
    operations = tuple(graph.operations[i] for i in indexes)
    written = dict.fromkeys(o for view in operations for o in view.operation.outputs)
    read = dict.fromkeys(o for view in operations for o in view.operation.inputs)
    inputs = tuple(o for o in read if o not in written and _comes_from_outside(graph.operands[o]))
    outside = read_outside(graph, operations)
    outputs = (o for o in written if o in outside or graph.operands[o].lifetime == OperandLifeTime.SUBGRAPH_OUTPUT)
    return SubgraphView(graph, operations, inputs, tuple(outputs), relaxed)


def read_outside(graph: Graph, operations: Sequence[OperationView]) -> set[int]:
    """Operands that these operations write and others of the graph read."""
    inside = Counter(o for view in operations for o in view.operation.inputs)
    return {o for view in operations for o in view.operation.outputs if graph.reads[o] > inside[o]}


def _comes_from_outside(operand: Operand) -> bool:
    return operand.lifetime in (
        OperandLifeTime.SUBGRAPH_INPUT,
        OperandLifeTime.TEMPORARY_VARIABLE,
        OperandLifeTime.SUBGRAPH_OUTPUT,
    )


def hold_rank(rank: int, place: str) -> None:
    """Refuses a tensor whose rank is too high; `place` names it.

    Raises:
        HalError: GENERAL_FAILURE: the HAL allows it, this driver does not.
    """
    if rank > MAX_RANK:
        raise general_failure(f"{place} has rank {rank}; this device takes at most {MAX_RANK}")


def array_over(operand: Operand, raw: AnyArray, dimensions: Sequence[int], *, private: bool = True) -> AnyArray:
    """The bytes `raw` (uint8) as the value of an operand; of an extension's type as elements that nobody looks into.
    A copy where memory is unaligned, where it is writable (its owner could change values that have been checked) and
    the array is to be `private`, and for booleans: one is any byte that is not 0, which numpy's bool must not be shown.
    """
    if operand.type in _BOOLS:
        return np.not_equal(raw, 0).reshape(dimensions)
    dtype = DTYPES.get(operand.type)
    array: AnyArray = elements(raw, dimensions) if dtype is None else raw.view(dtype).reshape(dimensions)
    return array if array.flags.aligned and not (private and array.flags.writeable) else array.copy()


def _constants(model: Model, number: int, subgraph: Subgraph) -> dict[int, AnyArray]:
    values = np.frombuffer(model.operand_values, np.uint8)
    constants = {}
    for index, operand in enumerate(subgraph.operands):
        if operand.type not in DTYPES and not is_extension(operand.type):
            continue
        if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
            pool = values
        elif operand.lifetime == OperandLifeTime.CONSTANT_POOL:
            memory = model.pools[operand.location.pool_index]
            assert isinstance(memory, Memory)
            pool = memory.view
        else:
            continue
        hold_rank(len(operand.dimensions), operand_place(number, index, operand))
        start = operand.location.offset
        if is_extension(operand.type):  # bytes that only its owner understands
            constants[index] = pool[start : start + operand.location.length].copy()
            constants[index].flags.writeable = False
            continue
        raw = pool[start : start + byte_size(operand.type, operand.dimensions)]
        constants[index] = array_over(operand, raw, operand.dimensions)
        constants[index].flags.writeable = False
    return constants
