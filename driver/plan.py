"""What preparation makes of a subgraph: nodes in order of execution; and how they are run.

A node is a partition on a backend, or an IF or WHILE with the plans of its subgraphs (`driver.control_flow`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driver.backends.api import CompiledSubgraph, Output, SubgraphView
from driver.cancellation import Cancellation
from driver.deadline import Deadline
from driver.graph import Graph
from nnhal.types import AnyArray


@dataclass(frozen=True, slots=True)
class Progress:
    """What ends an execution early; the `Run` that backends see.

    Attributes:
        loop_timeout_ns: what each WHILE may take.
    """

    deadline: Deadline
    cancellation: Cancellation
    loop_timeout_ns: int

    def check(self) -> None:
        """Between operations and nodes (V-RUN-08).

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT or, when cancelled, GENERAL_FAILURE.
        """
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
        inputs: its inputs, in order; None for an omitted one.
        outputs: where its outputs go, in order.
    """

    def __init__(self, graph: Graph, inputs: Sequence[AnyArray | None], outputs: Sequence[Output]) -> None:
        self.graph = graph
        self._values: dict[int, AnyArray | None] = dict(zip(graph.subgraph.input_indexes, inputs, strict=True))
        self._outputs: Mapping[int, Output] = dict(zip(graph.subgraph.output_indexes, outputs, strict=True))

    def value(self, operand: int) -> AnyArray | None:
        """The value of an operand, constants included; None where it is omitted."""
        found = self._values.get(operand)
        return found if found is not None else self.graph.constants.get(operand)

    def output(self, operand: int, *, read_again: bool) -> Output:
        """Where an operand's value goes. An output of the subgraph that a later node reads is kept as well."""
        output = self._outputs.get(operand)
        if output is None:
            return Temporary(self.graph.operands[operand].dimensions)
        return _Both(output) if read_again else output

    def keep(self, operand: int, output: Output) -> None:
        """Makes what an output received the value of an operand."""
        if isinstance(output, (Temporary, _Both)):
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


class Node(Protocol):
    """One step of a plan."""

    def run(self, frame: Frame, progress: Progress) -> None:
        """Runs the step on the values of a frame.

        Raises:
            HalError: the execution fails.
        """


@dataclass(frozen=True, eq=False)
class Step:
    """A partition, compiled. `read_again`: those of its outputs that later nodes read."""

    view: SubgraphView
    compiled: CompiledSubgraph
    read_again: frozenset[int]

    def run(self, frame: Frame, progress: Progress) -> None:
        """Runs the partition on its backend."""
        outputs = [frame.output(i, read_again=i in self.read_again) for i in self.view.outputs]
        self.compiled.execute([frame.value(i) for i in self.view.inputs], outputs, progress)
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
        frame = Frame(self.graph, inputs, outputs)
        for node in self.nodes:
            progress.check()
            node.run(frame, progress)

    def call(self, inputs: Sequence[AnyArray | None], progress: Progress) -> list[AnyArray]:
        """Runs the subgraph for another node; gives its outputs."""
        operands = self.graph.operands
        outputs = [Temporary(operands[i].dimensions) for i in self.graph.subgraph.output_indexes]
        self.run(inputs, outputs, progress)
        return [output.value for output in outputs if output.value is not None]
