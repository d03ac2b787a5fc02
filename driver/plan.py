"""What preparation makes of a subgraph: nodes in order of execution; and how they are run.

A node is a partition on a backend, or an IF or WHILE with the plans of its subgraphs (`driver.control_flow`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from driver.backends.api import CompiledSubgraph, Output, Run, SubgraphView
from driver.backends.layout import Layout, Relayout
from driver.cancellation import Cancellation
from driver.deadline import NO_DEADLINE, Deadline
from driver.graph import Graph
from driver.profiling import PartitionProfile, Spans
from nnhal.types import AnyArray


@dataclass(slots=True)  # a frozen one takes three times as long to make, and each execution has its own
class Progress:
    """What ends an execution early; the `Run` that backends see.

    Attributes:
        loop_timeout_ns: what each WHILE may take.
        spans: where what is measured goes; None: nothing is.
        profile: the same, for the partition that is running.
    """

    deadline: Deadline
    cancellation: Cancellation
    loop_timeout_ns: int
    spans: Spans | None = None
    profile: PartitionProfile | None = None

    def check(self) -> None:
        """Between operations and nodes (V-RUN-08).

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT or, when cancelled, GENERAL_FAILURE.
        """
        if self.deadline is not NO_DEADLINE:
            self.deadline.check("the execution")
        self.cancellation.check()


class Temporary:
    """An output that only other nodes of the execution read."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.value: AnyArray | None = None

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Keeps the value, or a copy of it."""
        self.value = array if keep else array.copy()


class Frame:
    """The values of one run of a subgraph.

    Args:
        graph: the subgraph.
        values: of its inputs, by operand; None for an omitted one. The frame keeps it.
        outputs: where its outputs go, by operand.
    """

    def __init__(self, graph: Graph, values: dict[int, AnyArray | None], outputs: Mapping[int, Output]) -> None:
        self.graph = graph
        self._values = values
        self._outputs = outputs
        self._images: dict[int, Image] = {}
        self._copies: dict[tuple[int, Relayout], AnyArray] = {}

    def value(self, operand: int) -> AnyArray | None:
        """The value of an operand, constants included; None where it is omitted."""
        found = self._values.get(operand)
        if found is None and operand in self._images:
            found = self._values[operand] = self._images[operand].in_model()
        return found if found is not None else self.graph.constants.get(operand)

    def image(self, operand: int, relayout: Relayout) -> AnyArray | None:
        """The value of an operand in a backend's own layout; copied once, unless it came from one with the same."""
        known = self._images.get(operand)
        if known is not None and known.relayout == relayout:
            return known.value
        if (copy := self._copies.get((operand, relayout))) is None and (value := self.value(operand)) is not None:
            copy = self._copies[operand, relayout] = relayout.to_own(value)
        return copy

    def output(self, operand: int, *, read_again: bool) -> Output:
        """Where an operand's value goes. An output of the subgraph that a later node reads is kept as well."""
        output = self._outputs.get(operand)
        if output is None:
            return Temporary(self.graph.operands[operand].dimensions)
        return _Both(output) if read_again else output

    def keep(self, operand: int, output: Output) -> None:
        """Makes what an output received the value of an operand."""
        if isinstance(output, Image):
            self._images[operand] = output
        elif isinstance(output, (Temporary, _Both)):
            self._values[operand] = output.value


class _Both:
    """An output of a subgraph that other nodes read as well."""

    def __init__(self, output: Output) -> None:
        self.declared = output.declared
        self.value: AnyArray | None = None
        self._output = output

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        self.value = array if keep else array.copy()
        self._output.write(self.value, keep=True)


class Image:
    """An output that comes in a backend's own layout. Others get a copy in the model's, when they ask for it."""

    def __init__(self, output: Output, relayout: Relayout) -> None:
        self.declared = output.declared
        self.relayout = relayout
        self.value: AnyArray | None = None
        self._output = output

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Keeps the value; an output of the subgraph gets its copy at once."""
        self.value = array if keep else array.copy()
        if not isinstance(self._output, Temporary) and (value := self.in_model()) is not None:
            self._output.write(value, keep=True)

    def in_model(self) -> AnyArray | None:
        """The value in the model's layout."""
        axis = 3 if self.relayout.model is Layout.NHWC else 1
        channels = self.declared[axis] if len(self.declared) == 4 else 0
        return None if self.value is None else self.relayout.to_model(self.value, channels)


class Node(Protocol):
    """One step of a plan."""

    @property
    def backend(self) -> str:
        """Id of what runs it, as the placement has it."""

    @property
    def indexes(self) -> tuple[int, ...]:
        """Its operations."""

    def run(self, frame: Frame, progress: Progress) -> None:
        """Runs the step on the values of a frame.

        Raises:
            HalError: the execution fails.
        """


@dataclass(frozen=True, eq=False)
class Step:
    """A partition, compiled. `read_again`: those of its outputs that later nodes read."""

    backend: str
    view: SubgraphView
    compiled: CompiledSubgraph
    read_again: frozenset[int]

    @cached_property
    def indexes(self) -> tuple[int, ...]:
        """Its operations."""
        return tuple(view.index for view in self.view.operations)

    def run(self, frame: Frame, progress: Run) -> None:
        """Runs the partition on its backend."""
        outputs = [frame.output(i, read_again=i in self.read_again) for i in self.view.outputs]
        layouts = self.compiled.layouts
        if not layouts:
            inputs = [frame.value(i) for i in self.view.inputs]
        else:
            inputs = [frame.image(i, layouts[i]) if i in layouts else frame.value(i) for i in self.view.inputs]
            outputs = [
                Image(output, layouts[i]) if i in layouts else output
                for i, output in zip(self.view.outputs, outputs, strict=True)
            ]
        self.compiled.execute(inputs, outputs, progress)
        for operand, output in zip(self.view.outputs, outputs, strict=True):
            frame.keep(operand, output)


@dataclass(frozen=True, eq=False)
class Plan:
    """A subgraph, ready to run."""

    graph: Graph
    nodes: tuple[Node, ...]

    def run(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], progress: Progress) -> None:
        """Runs every node in order.

        Args:
            inputs: one array for each input of the subgraph; None for an omitted one.
            outputs: one for each output.

        Raises:
            HalError: the execution fails; what the outputs hold is undefined.
        """
        if self._only is not None and progress.spans is None:
            progress.check()
            self._only.execute(inputs, outputs, progress)
            return
        ends = self.graph.subgraph
        values = dict(zip(ends.input_indexes, inputs, strict=True))
        frame = Frame(self.graph, values, dict(zip(ends.output_indexes, outputs, strict=True)))
        for node in self.nodes:
            progress.check()
            if progress.spans is None:
                node.run(frame, progress)
                continue
            profile = PartitionProfile(progress.spans, node.backend, self.graph.number, node.indexes)
            with profile.whole():
                node.run(frame, replace(progress, profile=profile))

    @cached_property
    def copies_inputs(self) -> bool:
        """Whether the inputs are read once only, by a backend that copies them before it looks at a value."""
        return self._only is not None and self._only.copies_inputs

    @cached_property
    def _only(self) -> CompiledSubgraph | None:
        """What runs all of the subgraph, where one partition has its very inputs and outputs; else None."""
        step = self.nodes[0] if len(self.nodes) == 1 else None
        if not isinstance(step, Step) or step.read_again or step.compiled.layouts:
            return None
        ends = (tuple(step.view.inputs), tuple(step.view.outputs))
        of_graph = (tuple(self.graph.subgraph.input_indexes), tuple(self.graph.subgraph.output_indexes))
        return step.compiled if ends == of_graph else None

    def call(self, inputs: Sequence[AnyArray | None], progress: Progress) -> list[AnyArray]:
        """Runs the subgraph for another node; gives its outputs."""
        operands = self.graph.operands
        outputs = [Temporary(operands[i].dimensions) for i in self.graph.subgraph.output_indexes]
        self.run(inputs, outputs, progress)
        return [output.value for output in outputs if output.value is not None]
