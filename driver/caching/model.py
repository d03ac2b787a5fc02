"""A plan as a document with arrays, and back: graphs with their constants, and for each partition what its backend
saved.

On the way back nothing is validated, placed or optimised. Operands, operations and constants are made when somebody
looks at them, which for most of them a backend that has saved all it needs never does.
"""

import json
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar, overload

from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Sections
from driver.caching.codec import decode, encode
from driver.caching.container import Container, ContainerWriter, Document, Row
from driver.control_flow import If, While, control_flow_node
from driver.graph import Graph, OperationView, SubgraphView
from driver.hosting import hosted
from driver.optimization import Composite, compiled_by
from driver.plan import Node, Plan, Step
from nnhal.types import AnyArray, Operand, Operation, Partition, Placement, Subgraph

T = TypeVar("T")


def save_plan(plan: Plan, placement: Placement, writer: ContainerWriter) -> Document:
    """Adds all arrays of a plan to a container; gives the document that describes it."""
    saver = _Saver(placement, writer)
    saver.add_plan(plan)
    # after what backends saved: where both are equal, their place within a page is the one that counts
    graphs = [
        [graph.number, _saved_subgraph(graph.subgraph, writer), _constants(graph, writer), [*graph.extensions.items()]]
        for graph in saver.graphs
    ]
    return {"placement": encode(Placement, placement), "graphs": graphs, "plans": saver.plans}


def _saved_subgraph(subgraph: Subgraph, writer: ContainerWriter) -> Row:
    """Inputs, outputs and their operands as they are; all else as the number of a blob, which few will look at."""
    operands, operations, inputs, outputs = encode(Subgraph, subgraph)
    ends = [[index, operands[index]] for index in sorted({*inputs, *outputs})]
    rest = json.dumps([operands, operations], separators=(",", ":")).encode()
    return [writer.blob(rest), [len(operands), len(operations)], ends, inputs, outputs]


def _constants(graph: Graph, writer: ContainerWriter) -> list[Row]:
    return [[operand, writer.array(array)] for operand, array in graph.constants.items()]


class _Saver:
    """Collects graphs, and plans in an order in which each comes after those that it runs."""

    def __init__(self, placement: Placement, writer: ContainerWriter) -> None:
        self.graphs: list[Graph] = []
        self.plans: list[Row] = []
        self._writer = writer
        self._graph_numbers: dict[int, int] = {}
        self._done: set[int] = set()
        self._partitions: dict[int, list[Partition]] = defaultdict(list)
        for one in placement.partitions:
            self._partitions[one.subgraph].append(one)

    def add_plan(self, plan: Plan) -> None:
        number = plan.graph.number
        if number in self._done:
            return
        self._done.add(number)
        nodes = [self._node(*pair) for pair in zip(plan.nodes, self._partitions[number], strict=True)]
        self.plans.append([self._graph(plan.graph), nodes])

    def _node(self, node: Node, partition: Partition) -> Row:
        match node:
            case Step():
                return self._step(node, partition.backend)
            case If(view=view, then=first, otherwise=second) | While(view=view, condition=first, body=second):
                self.add_plan(first)
                self.add_plan(second)
                return [None, view.index]
            case _:
                raise TypeError(f"{type(node).__name__} has no form in the cache")

    def _step(self, step: Step, backend: str) -> Row:
        return self._row(step, backend, self._saved(step.compiled, backend))

    def _row(self, step: Step, backend: str, saved: Row | None) -> Row:
        view = step.view
        indexes = [operation.index for operation in view.operations]
        described = [self._graph(view.graph), indexes, view.inputs, view.outputs, view.relaxed]
        return [backend, described, sorted(step.read_again), saved]

    def _saved(self, compiled: CompiledSubgraph, backend: str) -> Row | None:
        """What a backend saved of a partition: None where it optimises and compiles again, [] where it compiles again.

        Of one that it optimised, a row for each part, behind a None.
        """
        if not isinstance(compiled, Composite):
            return self._sections(compiled.save())
        saved = [step.compiled.save() for step in compiled.steps]
        if any(saved[number] is None for number in compiled.substituted):
            return None
        parts = zip(compiled.steps, saved, strict=True)
        return [None, [self._row(step, backend, self._sections(one) or []) for step, one in parts]]

    def _sections(self, sections: Sections | None) -> Row | None:
        if sections is None:
            return None
        return [self._writer.blob(sections.model), [self._writer.array(array) for array in sections.data]]

    def _graph(self, graph: Graph) -> int:
        """The number of a graph in the document. A backend may have made a graph of its own for its partition."""
        if id(graph) not in self._graph_numbers:
            self._graph_numbers[id(graph)] = len(self.graphs)
            self.graphs.append(graph)
        return self._graph_numbers[id(graph)]


def load_placement(document: Document) -> Placement:
    """The placement that was saved."""
    return decode(Placement, document["placement"])


def load_graphs(container: Container) -> list[Graph]:
    """The graphs that were saved; the first is not always main."""
    return [
        Graph(
            number,
            _subgraph(subgraph, container),
            _Constants(container, dict(constants)),
            extensions=dict(extensions),
        )
        for number, subgraph, constants, extensions in container.document["graphs"]
    ]


def _subgraph(row: Row, container: Container) -> Subgraph:
    """A subgraph of which most is decoded when somebody looks at it."""
    rest, (operand_count, operation_count), ends, inputs, outputs = row

    @cache
    def rows() -> Row:
        found: Row = json.loads(container.blob(rest))
        return found

    operands = _Decoded(Operand, operand_count, lambda: rows()[0], {index: decode(Operand, end) for index, end in ends})
    operations = _Decoded(Operation, operation_count, lambda: rows()[1], {})
    return Subgraph(operands, operations, tuple(inputs), tuple(outputs))  # type: ignore[arg-type]


def load_plan(
    container: Container,
    graphs: Sequence[Graph],
    backends: Mapping[str, Backend],
    options: CompileOptions,
    check: Callable[[], None],
) -> Plan:
    """The plan that was saved.

    Args:
        graphs: from `load_graphs`.
        backends: by id.
        check: called between partitions; raises to end the preparation.

    Raises:
        HalError: a backend cannot load a part, or what `check` raises.
    """
    plans: dict[int, Plan] = {}
    for index, rows in container.document["plans"]:
        graph = graphs[index]
        nodes: list[Node] = []
        for row in rows:
            check()
            if row[0] is None:
                view = graph.operations[row[1]]
                nodes.append(control_flow_node(view, plans))
            else:
                nodes.append(_step(row, container, graphs, backends, options))
        plans[graph.number] = Plan(graph, tuple(nodes))
    return plans[0]


def _step(
    row: Row,
    container: Container,
    graphs: Sequence[Graph],
    backends: Mapping[str, Backend],
    options: CompileOptions,
) -> Step:
    backend, (graph, indexes, inputs, outputs, relaxed), read_again, saved = row
    view = SubgraphView(graphs[graph], _Operations(graphs[graph], indexes), tuple(inputs), tuple(outputs), relaxed)
    if saved and saved[0] is None:
        parts = [_step(part, container, graphs, backends, options) for part in saved[1]]
        return Step(backend, view, Composite(view, parts), frozenset(read_again))
    compiled = _compiled(view, saved, container, backends[backend], options)
    return Step(backend, view, compiled, frozenset(read_again))


def _compiled(
    view: SubgraphView, sections: Row | None, container: Container, backend: Backend, options: CompileOptions
) -> CompiledSubgraph:
    if sections is None:
        return compiled_by(backend, view, options)
    if not sections:
        return hosted(backend, lambda: backend.compile(view, options))
    model, data = sections
    saved = Sections(container.blob(model), tuple(map(container.array, data)))
    return hosted(backend, lambda: backend.load(view, saved, options))


class _Lazy(Sequence[T]):
    """A sequence whose items are made when somebody looks at them."""

    @abstractmethod
    def _item(self, index: int) -> T:
        """One of them. `index`: at least 0."""

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: int | slice) -> T | tuple[T, ...]:
        found = range(len(self))[key]
        return self._item(found) if isinstance(found, int) else tuple(map(self._item, found))


class _Decoded(_Lazy[T]):
    """Values of one type, each decoded when it is looked at first.

    Args:
        count: how many.
        rows: gives what they are decoded from.
        known: those that are decoded already, by number.
    """

    def __init__(self, type_: type[T], count: int, rows: Callable[[], list[Row]], known: dict[int, T]) -> None:
        self._type = type_
        self._count = count
        self._rows = rows
        self._values = known

    def __len__(self) -> int:
        return self._count

    def _item(self, index: int) -> T:
        if index not in self._values:
            self._values[index] = decode(self._type, self._rows()[index])
        return self._values[index]


class _Constants(Mapping[int, AnyArray]):
    """Constants of a graph, each made an array when it is looked at first."""

    def __init__(self, container: Container, numbers: dict[int, int]) -> None:
        self._container = container
        self._numbers = numbers
        self._arrays: dict[int, AnyArray] = {}

    def __getitem__(self, operand: int) -> AnyArray:
        if operand not in self._arrays:
            self._arrays[operand] = self._container.array(self._numbers[operand])
        return self._arrays[operand]

    def __contains__(self, operand: object) -> bool:
        return operand in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Operations(_Lazy[OperationView]):
    """Some operations of a graph, bound when one is looked at."""

    def __init__(self, graph: Graph, indexes: Sequence[int]) -> None:
        self._graph = graph
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    def _item(self, index: int) -> OperationView:
        return self._graph.operations[self._indexes[index]]

    def __iter__(self) -> Iterator[OperationView]:
        operations = self._graph.operations
        return (operations[i] for i in self._indexes)
