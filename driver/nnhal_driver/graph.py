"""Graphs: validated subgraphs in the form that placement, shape rules and backends read.

Arguments have names, and constants are arrays. Constants are views of the model's memory, or copies of memory that a
client may still write to.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nnhal.operations import SIGNATURES, Arguments
from nnhal.types import (
    DTYPES,
    AnyArray,
    Bytes,
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
from nnhal_driver.overlaps import Place, address, merge
from nnhal_driver.scheduling.paced_check import proceed
from nnhal_driver.validation.error_location import operand_location
from nnhal_driver.validation.rank import check_rank

VARIABLE_LIFETIMES = (
    OperandLifeTime.SUBGRAPH_INPUT,
    OperandLifeTime.TEMPORARY_VARIABLE,
    OperandLifeTime.SUBGRAPH_OUTPUT,
)
"""Lifetimes of operands whose values differ between executions."""
BOOLS = (OperandType.BOOL, OperandType.TENSOR_BOOL8)


@dataclass(frozen=True, eq=False)
class OperationView:
    """One operation of a graph. An operation of an extension has the extension's name and a number.

        if operation.extension == "com.acme.npu" and operation.type & 0xFFFF == SQUARED_DIFFERENCE: ...

    Attributes:
        graph: the subgraph.
        index: its number in the subgraph.
        operation: the operation: its type, and the numbers of its operands (`inputs`, `outputs`), in the order of the
            signature.
        arguments: operands by the names of the signature; None for operations without one (extensions, IF, WHILE).
        positions: operand index of each argument by name. Arguments of extension operations are named input0, input1,
            ..., and output0, output1, ...
    """

    graph: "Graph" = field(repr=False)
    index: int
    operation: Operation
    arguments: Arguments | None
    positions: Mapping[str, int]

    @property
    def type(self) -> int:
        """The type: an OperationType; for an extension its number in the low 16 bits, above a prefix of the model."""
        return self.operation.type

    @property
    def name(self) -> str:
        """Name in messages, for example "operation 3 of main (CONV_2D)"."""
        return f"operation {self.index} of {self.graph.name} ({self.graph.operation_name(self.type)})"

    @property
    def extension(self) -> str:
        """Name of the operation's extension; "" for operations of the HAL and for unknown prefixes."""
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
        """Return the operand of an argument: its type, dimensions, scale and zero point.

        Raises:
            KeyError: the operation has no such argument, for example because an optional one is absent. The message has
                the names that it has.
        """
        if name not in self.positions:
            raise KeyError(f"{self.name} has no argument {name!r}; it has {', '.join(self.positions)}")
        return self.graph.operands[self.positions[name]]

    def constant(self, name: str) -> AnyArray | None:
        """Return the value of a constant argument, or None if it is not constant, omitted or absent.

        The array is read-only, in the shape and dtype of the operand (`Graph.constants`).
        """
        return self.graph.constants.get(self.positions.get(name, -1))


@dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph of a model.

    Attributes:
        number: 0 is main, i + 1 is referenced[i].
        subgraph: the subgraph, as in the HAL.
        constants: values by operand, as read-only arrays with the operand's dimensions and dtype: DTYPES[type], bool
            for BOOL and TENSOR_BOOL8. A scalar has the shape (). A value of an extension's type is all its bytes, as
            uint8 of rank 1.
        annotations: cached results of backends about the graph, each under a key object of its own.
        extensions: names of the extensions that the model uses, by prefix.
        disabled_extensions: names of those that the device does not support, for messages.
        check: called between the steps of an analysis. It raises a HalError if the preparation must end; do not catch
            it.
    """

    number: int
    subgraph: Subgraph
    constants: Mapping[int, AnyArray]
    annotations: dict[object, Any] = field(default_factory=dict, repr=False)
    extensions: Mapping[int, str] = field(default_factory=dict, repr=False)
    disabled_extensions: Mapping[int, str] = field(default_factory=dict, repr=False)
    check: Callable[[], None] = field(default=proceed, repr=False)

    @property
    def name(self) -> str:
        """Name in messages."""
        return "main" if self.number == 0 else f"referenced subgraph {self.number - 1}"

    def extension(self, type_: int) -> str:
        """Return the name of the extension of an operand or operation type, or "" if it has none."""
        return self.extensions.get(type_ >> 16, "") if is_extension(type_) else ""

    def operation_name(self, type_: int) -> str:
        """Return the name of an operation type, for example "CONV_2D" or "SUBMODEL of org.nnhal.litert"."""
        return operation_name(type_, {**self.extensions, **self.disabled_extensions})

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Operands of the subgraph. In `dimensions`, 0 is unknown; () is a scalar, or a tensor of unknown rank."""
        return self.subgraph.operands

    @cached_property
    def use_counts(self) -> Counter[int]:
        """Number of times that each operand is an input of an operation."""
        return Counter(o for operation in self.subgraph.operations for o in operation.inputs)

    @cached_property
    def operations(self) -> tuple[OperationView, ...]:
        """Operations of the subgraph, with their arguments by name."""
        views = []
        for i, operation in enumerate(self.subgraph.operations):
            self.check()
            views.append(self._view(i, operation))
        return tuple(views)

    def drop_caches(self) -> None:
        """Drop the cached objects that refer back to the graph; see the function of this name."""
        self.annotations.clear()
        self.__dict__.pop("operations", None)  # the cached property; `del` is not possible on a frozen dataclass

    def _view(self, index: int, operation: Operation) -> OperationView:
        signature = SIGNATURES.get(operation.type)
        if signature is None:
            positions = _numbered_positions(operation) if is_extension(operation.type) else {}
            return OperationView(self, index, operation, None, positions)
        operands = self.subgraph.operands
        bound = signature.bind([operands[i] for i in operation.inputs], [operands[i] for i in operation.outputs])
        assert isinstance(bound, Arguments), f"{operation_name(operation.type)} was not validated: {bound}"
        names = (*bound.inputs, *bound.outputs)
        positions = dict(zip(names, (*operation.inputs, *operation.outputs), strict=True))
        return OperationView(self, index, operation, bound, positions)


def _numbered_positions(operation: Operation) -> dict[str, int]:
    """Return the operand indexes of an operation without a signature."""
    inputs = {f"input{number}": operand for number, operand in enumerate(operation.inputs)}
    return inputs | {f"output{number}": operand for number, operand in enumerate(operation.outputs)}


@dataclass(frozen=True, eq=False)
class SubgraphView:
    """Operations of one graph that one backend runs as a unit.

    Attributes:
        operations: the operations, in an order of execution.
        inputs: numbers of the operands that come from outside, except constants: the inputs of `execute`, in order.
        outputs: numbers of the operands that are used outside: the outputs of `execute`, in order.
        relaxed: whether TENSOR_FLOAT32 may be computed in half precision.
    """

    graph: Graph
    operations: Sequence[OperationView]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    relaxed: bool = False

    def part(self, indexes: Sequence[int]) -> "SubgraphView":
        """Return a view of some of its operations, with the inputs and outputs of these alone.

        Args:
            indexes: their `OperationView.index`, in an order of execution.
        """
        return subgraph_view(self.graph, indexes, self.relaxed)


def build_graphs(
    model: Model, disabled_extensions: Collection[str] = (), check: Callable[[], None] = proceed
) -> tuple[Graph, ...]:
    """Return the subgraphs of a valid model, main first. Operations of disabled extensions belong to none.

    The check becomes `Graph.check`. It is called between subgraphs as well.

    Raises:
        HalError: GENERAL_FAILURE: the rank of a constant is too high; or what `check` raises.
    """
    names = model.extension_names
    enabled = {prefix: name for prefix, name in names.items() if name not in disabled_extensions}
    disabled = {prefix: name for prefix, name in names.items() if name in disabled_extensions}
    return tuple(
        Graph(number, subgraph, constants, extensions=enabled, disabled_extensions=disabled, check=check)
        for number, (subgraph, constants) in enumerate(zip(model.subgraphs, _constants(model, check), strict=True))
    )


def drop_caches(graphs: Sequence[Graph]) -> None:
    """Drop cached objects that refer back to their graph, so that its memory is freed with the last user.

    Otherwise the garbage collector would free these cycles some time later, with constants of hundreds of megabytes.
    """
    for graph in graphs:
        graph.drop_caches()


def callees(graph: Graph) -> list[int]:
    """Return the numbers of the subgraphs that a graph's operations run."""
    return [number for view in graph.operations for number in view.callees]


def callees_first(graphs: Sequence[Graph]) -> list[Graph]:
    """Return the graphs that main reaches, each after all graphs that it runs. Main is the last.

    Not recursive: only the size of a message limits how deep a client may nest subgraphs.
    """
    order: list[Graph] = []
    seen: set[int] = set()
    stack: list[tuple[int, bool]] = [(0, False)]
    while stack:
        number, done = stack.pop()
        if done:
            order.append(graphs[number])
        elif number not in seen:
            seen.add(number)
            stack.append((number, True))
            stack += [(callee, False) for callee in callees(graphs[number])]
    return order


def subgraph_view(graph: Graph, indexes: Sequence[int], relaxed: bool) -> SubgraphView:
    """Return a view of the operations `indexes` of a graph, with its inputs and outputs."""
    operations = tuple(graph.operations[i] for i in indexes)
    written = dict.fromkeys(o for view in operations for o in view.operation.outputs)
    used = dict.fromkeys(o for view in operations for o in view.operation.inputs)
    inputs = tuple(o for o in used if o not in written and graph.operands[o].lifetime in VARIABLE_LIFETIMES)
    outside = used_outside(graph, operations)
    outputs = (o for o in written if o in outside or graph.operands[o].lifetime == OperandLifeTime.SUBGRAPH_OUTPUT)
    return SubgraphView(graph, operations, inputs, tuple(outputs), relaxed)


def used_outside(graph: Graph, operations: Sequence[OperationView]) -> set[int]:
    """Return the operands that these operations write and others of the graph read."""
    inside = Counter(o for view in operations for o in view.operation.inputs)
    return {o for view in operations for o in view.operation.outputs if graph.use_counts[o] > inside[o]}


def array_from_bytes(operand: Operand, raw: AnyArray, dimensions: Sequence[int], *, private: bool = True) -> AnyArray:
    """Return bytes as the value of an operand.

    Args:
        operand: the operand. Values of extension types become opaque elements.
        raw: the bytes (uint8).
        dimensions: the shape of the value.
        private: whether to copy writable memory, whose owner could change values that have been checked.

    Returns:
        a view of the bytes; a copy of unaligned memory, of writable memory if `private`, and of booleans. Any byte
        other than 0 is true, but numpy's bool must be 0 or 1.
    """
    if operand.type in BOOLS:
        return np.not_equal(raw, 0).reshape(dimensions)
    dtype = DTYPES.get(operand.type)
    array: AnyArray = elements(raw, dimensions) if dtype is None else raw.view(dtype).reshape(dimensions)
    return array if array.flags.aligned and not (private and array.flags.writeable) else array.copy()


class ConstantBytes(NamedTuple):
    """Constant `number` of a subgraph. `raw`: a view of its bytes in the model's memory."""

    subgraph: int
    number: int
    operand: Operand
    raw: Bytes

    @property
    def is_copied(self) -> bool:
        """True if it cannot be used in place, because of its type, its alignment, or a client that may change it."""
        if self.operand.type in BOOLS or is_extension(self.operand.type) or self.raw.flags.writeable:
            return True
        return address(self.raw) % DTYPES[self.operand.type].itemsize != 0

    def array(self, raw: AnyArray) -> AnyArray:
        """Return its bytes, or its booleans, as its value."""
        if is_extension(self.operand.type):
            return raw
        return raw.view(DTYPES[self.operand.type]).reshape(self.operand.dimensions)


def constant_bytes(model: Model) -> Iterator[ConstantBytes]:
    """Yield the constants of all subgraphs of a model."""
    values = np.frombuffer(model.operand_values, np.uint8)
    for number, subgraph in enumerate(model.subgraphs):
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
            start, length = operand.location.offset, operand.location.length
            size = length if is_extension(operand.type) else byte_size(operand.type, operand.dimensions)
            yield ConstantBytes(number, index, operand, pool[start : start + size])


def copied_regions(
    constants: Iterable[ConstantBytes],
) -> Iterator[tuple[list[ConstantBytes], list[Bytes], list[Place]]]:
    """Yield the constants that are copied, first booleans and then others, with the regions to copy; see `merge`."""
    copied = [constant for constant in constants if constant.is_copied]
    for is_bool in (True, False):
        group = [constant for constant in copied if (constant.operand.type in BOOLS) == is_bool]
        yield group, *merge([constant.raw for constant in group])


def _constants(model: Model, check: Callable[[], None]) -> list[dict[int, AnyArray]]:
    """Return the constants of each subgraph. Copies of constants that overlap are views of one copy."""
    found = list(constant_bytes(model))
    constants: list[dict[int, AnyArray]] = [{} for _ in model.subgraphs]
    for constant in found:
        check()
        check_rank(len(constant.operand.dimensions), operand_location(*constant[:3]))
        constants[constant.subgraph][constant.number] = constant.array(constant.raw)
    for group, regions, places in copied_regions(found):
        copies = []
        for region in regions:
            check()
            copies.append(np.not_equal(region, 0) if group[0].operand.type in BOOLS else region.copy())
            copies[-1].flags.writeable = False
        for constant, (number, offset) in zip(group, places, strict=True):
            raw = copies[number][offset : offset + constant.raw.size]
            constants[constant.subgraph][constant.number] = constant.array(raw)
    return constants
