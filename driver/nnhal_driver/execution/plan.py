"""Plans: the compiled form of a subgraph. A plan runs its nodes in order.

A node is a partition on a backend, or an IF or WHILE with the plans of its subgraphs
(`nnhal_driver.execution.control_flow`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from nnhal.types import AnyArray
from nnhal_driver.backends.api import CompiledSubgraph, Output, Run, SubgraphView
from nnhal_driver.backends.deferral import DeferringRun, TurnTakingRun, Wait
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory, DeviceValue
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.execution.buffer import BufferOutput
from nnhal_driver.execution.profiling import PartitionProfile, SpanRecorder
from nnhal_driver.execution.request_binding import RegionOutput
from nnhal_driver.graph import Graph
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.ticket import Slot

F = TypeVar("F")
V = TypeVar("V")


@dataclass(slots=True)  # not frozen: that takes three times as long to create, and each execution has its own
class RunContext(TurnTakingRun):
    """Context of one execution; the `Run` that backends see.

    Attributes:
        spans: the recorder of spans; None without profiling.
        profile: the profile of the partition that is running; None without profiling.
        slot: the slot of the execution; None if it takes no turns.
    """

    deadline: Deadline
    cancellation: Cancellation
    loop_timeout_ns: int
    spans: SpanRecorder | None = None
    profile: PartitionProfile | None = None
    deferred: list[Wait] | None = None
    slot: Slot | None = None

    def check(self) -> None:
        """Raise if the execution must end. Called between operations and nodes (V-RUN-08).

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT or, when cancelled, GENERAL_FAILURE.
        """
        if self.deadline is not NO_DEADLINE:
            self.deadline.check("the execution")
        self.cancellation.check()

    def take_turns(self) -> None:
        """See the base class."""
        self.check()
        if self.slot is not None:
            self.slot.take_turns()

    def check_elsewhere(self) -> None:
        """See the base class."""
        self.check()
        if self.slot is not None:
            self.slot.give_way()


class Intermediate:
    """Output that only other nodes of the execution read, for example the result of a branch."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.value: AnyArray | None = None

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Keep the value, or a copy of it."""
        self.value = array if keep else array.copy()


class _Temporary(Intermediate):
    """Output that only later nodes of the same subgraph read. `SubgraphValues` gives them the form that they need."""


class SubgraphValues:
    """Values of the operands in one run of a subgraph.

    Args:
        values: the inputs by operand; None for an omitted one. The object takes over the dictionary.
        outputs: the outputs of the subgraph by operand.
        finish: waits until everything that backends have started is done.
    """

    def __init__(
        self,
        graph: Graph,
        values: dict[int, AnyArray | DeviceValue | None],
        outputs: Mapping[int, Output],
        finish: Callable[[], None],
    ) -> None:
        self.graph = graph
        self._values = values
        self._outputs = outputs
        self._finish = finish
        self._converted: dict[int, RelaidOutput | DeviceOutput] = {}
        self._copies: dict[tuple[int, Relayout | DeviceMemory], Any] = {}

    def value(self, operand: int) -> AnyArray | None:
        """Return the value of an operand, including constants; None if it is omitted."""
        value = self._values.get(operand)
        if value is None and operand in self._converted:
            self._finish()  # a device may still be computing it
            value = self._values[operand] = self._converted[operand].in_model_layout()
        elif isinstance(value, DeviceValue):
            value = self._values[operand] = value.to_host()
        return value if value is not None else self.graph.constants.get(operand)

    def converted_value(self, operand: int, form: Relayout | DeviceMemory) -> Any:
        """Return the value of an operand in a backend's own layout or memory; None if it is omitted.

        It is copied once, unless it was written in that form.
        """
        converted = self._converted.get(operand)
        if converted is not None and converted.form == form:
            return converted.value
        stored = self._values.get(operand)
        if isinstance(stored, DeviceValue) and stored.memory == form:
            return stored.buffer
        if (copy := self._copies.get((operand, form))) is None and (value := self.value(operand)) is not None:
            copy = self._copies[operand, form] = form.to_own(value)
        return copy

    def output(self, operand: int, *, used_later: bool = False) -> Output:
        """Return the output for an operand. An output of the subgraph that a later node reads is stored as well."""
        output = self._outputs.get(operand)
        if output is None:
            return _Temporary(self.graph.operands[operand].dimensions)
        return _TeeOutput(output) if used_later else output

    def store(self, operand: int, output: Output) -> None:
        """Make what an output received the value of an operand."""
        if isinstance(output, (RelaidOutput, DeviceOutput)):
            self._converted[operand] = output
        elif isinstance(output, (Intermediate, _TeeOutput)):
            self._values[operand] = output.value


class _TeeOutput:
    """Output of a subgraph that other nodes read as well."""

    def __init__(self, output: Output) -> None:
        self.declared = output.declared
        self.value: AnyArray | None = None
        self._output = output

    def write(self, array: Any, *, keep: bool = False) -> None:
        self.value = array if keep else array.copy()
        self._output.write(self.value, keep=True)


class _ConvertedOutput(Generic[F, V]):
    """Output in a backend's own layout or memory. Other nodes get a copy in the model's form on demand."""

    def __init__(self, output: Output, form: F) -> None:
        self.declared = output.declared
        self.form = form
        self.value: V | None = None
        self._output = output


class RelaidOutput(_ConvertedOutput[Relayout, AnyArray]):
    """Output in a backend's own layout."""

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Keep the value. An output of the subgraph gets its copy at once."""
        self.value = array if keep else array.copy()
        if not isinstance(self._output, _Temporary) and (value := self.in_model_layout()) is not None:
            self._output.write(value, keep=True)

    def in_model_layout(self) -> AnyArray | None:
        """Return the value in the model's layout."""
        axis = 3 if self.form.model is Layout.NHWC else 1
        channels = self.declared[axis] if len(self.declared) == 4 else 0
        return None if self.value is None else self.form.to_model(self.value, channels)


class DeviceOutput(_ConvertedOutput[DeviceMemory, DeviceBuffer]):
    """Output in a backend's own memory."""

    _on_host: AnyArray | None = None

    def write(self, buffer: Any, *, keep: bool = False) -> None:
        """Keep the buffer, or a copy of it."""
        self.value = buffer if keep else self.form.duplicate(buffer)

    def deliver(self) -> None:
        """Copy the value into an output of the subgraph. That of a buffer may stay in this memory."""
        value, output = self.value, self._output
        if value is None or isinstance(output, _Temporary):
            return
        if isinstance(output, BufferOutput) and self.form.keep(value):
            output.write(DeviceValue(self.form, value))
        elif isinstance(output, RegionOutput) and (view := output.view(value.shape, value.dtype)) is not None:
            self.form.copy(value, view)
        elif (array := self.in_model_layout()) is not None:
            output.write(array, keep=True)

    def in_model_layout(self) -> AnyArray | None:
        """Return the value in memory of the host."""
        if self._on_host is None and self.value is not None:
            self._on_host = self.form.to_host(self.value)
        return self._on_host


class Node(Protocol):
    """One step of a plan."""

    @property
    def backend(self) -> str:
        """Id of the backend, as in the placement."""

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of its operations."""

    def run(self, values: SubgraphValues, context: RunContext) -> None:
        """Run the step on the values of a subgraph.

        Raises:
            HalError: the execution fails.
        """


@dataclass(frozen=True, eq=False)
class PartitionNode:
    """Compiled partition. `used_later`: the outputs that later nodes read."""

    backend: str
    view: SubgraphView
    compiled: CompiledSubgraph
    used_later: frozenset[int]

    @cached_property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of its operations."""
        return tuple(view.index for view in self.view.operations)

    def run(self, values: SubgraphValues, context: Run) -> None:
        """Run the partition on its backend. If another node reads an output on the host, wait until it is written."""
        compiled, view = self.compiled, self.view
        outputs: list[Output] = [self._output(values, i) for i in view.outputs]
        if not compiled.layouts and not compiled.device_operands:
            compiled.execute([values.value(i) for i in view.inputs], outputs, context)
            awaited: Collection[int] = self.used_later
        else:
            inputs = [self._input(values, i) for i in view.inputs]
            compiled.execute(inputs, outputs, context)
            awaited = self._deliver(outputs, context)
        if awaited and isinstance(context, DeferringRun):
            context.finish()
        for operand, output in zip(view.outputs, outputs, strict=True):
            values.store(operand, output)

    def _input(self, values: SubgraphValues, operand: int) -> Any:
        form = self.compiled.layouts.get(operand) or self.compiled.device_operands.get(operand)
        return values.value(operand) if form is None else values.converted_value(operand, form)

    def _output(self, values: SubgraphValues, operand: int) -> Output:
        if (layout := self.compiled.layouts.get(operand)) is not None:
            return RelaidOutput(values.output(operand), layout)
        if (memory := self.compiled.device_operands.get(operand)) is not None:
            return DeviceOutput(values.output(operand), memory)
        return values.output(operand, used_later=operand in self.used_later)

    def _deliver(self, outputs: Sequence[Output], context: Run) -> Collection[int]:
        """Copy values out of a backend's memory for outputs of the subgraph. Return the outputs to wait for."""
        on_device = [output for output in outputs if isinstance(output, DeviceOutput)]
        for output in on_device:
            if isinstance(context, DeferringRun) and context.deferred:
                context.defer(output.deliver)
            else:
                output.deliver()
        ready = {operand for operand, output in zip(self.view.outputs, outputs, strict=True) if output in on_device}
        missing = any(output.value is None for output in on_device)
        return self.used_later if missing else self.used_later - ready


@dataclass(frozen=True, eq=False)
class Plan:
    """A subgraph that is ready to run."""

    graph: Graph
    nodes: tuple[Node, ...]

    def run(
        self, inputs: Sequence[AnyArray | DeviceValue | None], outputs: Sequence[Output], context: RunContext
    ) -> None:
        """Run every node in order. An omitted input is None; one in memory of a backend is in one of `memories`.

        Whether it fails or not, the caller waits for what backends have only started (`context.finish`).

        Raises:
            HalError: the execution fails. The contents of the outputs are undefined.
        """
        if self._only is not None and context.spans is None:
            context.take_turns()
            compiled, order = self._only
            if order is not None:
                inputs, outputs = [inputs[i] for i in order[0]], [outputs[i] for i in order[1]]
            compiled.execute(inputs, outputs, context)
            return
        subgraph = self.graph.subgraph
        input_values = dict(zip(subgraph.input_indexes, inputs, strict=True))
        output_values = dict(zip(subgraph.output_indexes, outputs, strict=True))
        values = SubgraphValues(self.graph, input_values, output_values, context.finish)
        for node in self.nodes:
            context.take_turns()
            if context.spans is None:
                node.run(values, context)
                continue
            profile = PartitionProfile(context.spans, node.backend, self.graph.number, node.indexes)
            context.deferred = context.deferred or []  # both contexts share it
            with profile.measure():
                node.run(values, replace(context, profile=profile) if context.spans.operations else context)
                context.finish()  # the measurement covers the whole work

    @cached_property
    def copies_inputs(self) -> bool:
        """True if each input is read only once, by a backend that copies it before it looks at a value."""
        node = self.nodes[0] if len(self.nodes) == 1 else None
        return isinstance(node, PartitionNode) and node.compiled.copies_inputs and not node.compiled.layouts

    @cached_property
    def memories(self) -> frozenset[DeviceMemory]:
        """Memories of backends that its partitions use."""
        partitions = (node.compiled for node in self.nodes if isinstance(node, PartitionNode))
        return frozenset(memory for compiled in partitions for memory in compiled.device_operands.values())

    @cached_property
    def _only(self) -> tuple[CompiledSubgraph, tuple[list[int], list[int]] | None] | None:
        """The only partition, if its inputs and outputs are those of the subgraph; else None.

        If their order is another one: the positions of its inputs and outputs in the subgraph.
        """
        node = self.nodes[0] if len(self.nodes) == 1 else None
        if not isinstance(node, PartitionNode) or node.used_later:
            return None
        if node.compiled.layouts or node.compiled.device_operands:
            return None
        of_node = (list(node.view.inputs), list(node.view.outputs))
        of_graph = (list(self.graph.subgraph.input_indexes), list(self.graph.subgraph.output_indexes))
        if of_node == of_graph:
            return node.compiled, None
        if any(sorted(own) != sorted(all_) for own, all_ in zip(of_node, of_graph, strict=True)):
            return None
        inputs, outputs = ([all_.index(i) for i in own] for own, all_ in zip(of_node, of_graph, strict=True))
        return node.compiled, (inputs, outputs)

    def call(self, inputs: Sequence[AnyArray | None], context: RunContext) -> list[AnyArray]:
        """Run the subgraph for another node. Return its outputs."""
        operands = self.graph.operands
        outputs = [Intermediate(operands[i].dimensions) for i in self.graph.subgraph.output_indexes]
        self.run(inputs, outputs, context)
        context.finish()
        return [output.value for output in outputs if output.value is not None]
