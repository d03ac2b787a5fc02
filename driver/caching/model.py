"""A plan as a document with arrays, and back: graphs with their constants, and for each partition what its backend
saved.

On the way back nothing is validated, placed or optimised. Operands, operations and constants are made when somebody
looks at them, which for most of them a backend that has saved all it needs never does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Sections
from driver.caching.codec import decode, encode
from driver.caching.container import Container, ContainerWriter, Document
from driver.control_flow import If, While
from driver.graph import Graph, OperationView, SubgraphView
from driver.hosting import hosted
from driver.optimization import compiled_by
from driver.plan import Node, Plan, Step
from nnhal.types import AnyArray, Operand, Operation, OperationType, Partition, Placement, Subgraph

T = TypeVar("T")

Row = list[Any]
"""A part of the document: values in a fixed order."""

_CONTROL_FLOW: Mapping[int, Callable[..., Node]] = {OperationType.IF: If, OperationType.WHILE: While}


def save_plan(plan: Plan, placement: Placement, writer: ContainerWriter) -> Document:
    """Adds all arrays of a plan to a container; gives the document that describes it."""
    saver = _Saver(placement, writer)
    saver.add_plan(plan)
    # after what backends saved: where both are equal, their place within a page is the one that counts
    graphs = [
        [graph.number, encode(Subgraph, graph.subgraph), _constants(graph, writer), list(graph.extensions.items())]
        for graph in saver.graphs
    ]
    return {"placement": encode(Placement, placement), "graphs": graphs, "plans": saver.plans}


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
        view = step.view
        indexes = [operation.index for operation in view.operations]
        described = [self._graph(view.graph), indexes, view.inputs, view.outputs, view.relaxed]
        return [backend, described, sorted(step.read_again), self._sections(step.compiled.save())]

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
            _subgraph(subgraph),
            _Constants(container, dict(constants)),
            extensions=dict(extensions),
        )
        for number, subgraph, constants, extensions in container.document["graphs"]
    ]


def _subgraph(row: Row) -> Subgraph:
    """A subgraph of which most is decoded when somebody looks at it."""
    operands, operations, inputs, outputs = row
    lazily = _Decoded(Operand, operands), _Decoded(Operation, operations)
    return Subgraph(*lazily, tuple(inputs), tuple(outputs))  # type: ignore[arg-type]


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
                nodes.append(_CONTROL_FLOW[view.type](view, *(plans[callee] for callee in view.callees)))
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
    backend, (graph, indexes, inputs, outputs, relaxed), read_again, sections = row
    view = SubgraphView(graphs[graph], _Operations(graphs[graph], indexes), tuple(inputs), tuple(outputs), relaxed)
    compiled = _compiled(view, sections, container, backends[backend], options)
    return Step(backend, view, compiled, frozenset(read_again))


def _compiled(
    view: SubgraphView, sections: Row | None, container: Container, backend: Backend, options: CompileOptions
) -> CompiledSubgraph:
    if sections is None:
        return compiled_by(backend, view, options)
    model, data = sections
    saved = Sections(container.blob(model), tuple(map(container.array, data)))
    return hosted(backend, lambda: backend.load(view, saved, options))


class _Decoded(Sequence[T]):
    """Values of one type, each decoded when it is looked at first."""

    def __init__(self, type_: type[T], rows: list[Row]) -> None:
        self._type = type_
        self._rows = rows
        self._values: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: int | slice) -> T | tuple[T, ...]:
        if isinstance(key, slice):
            return tuple(self[i] for i in range(len(self))[key])
        if key not in self._values:
            self._values[key] = decode(self._type, self._rows[key])
        return self._values[key]


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


class _Operations(Sequence[OperationView]):
    """Some operations of a graph, bound when one is looked at."""

    def __init__(self, graph: Graph, indexes: Sequence[int]) -> None:
        self._graph = graph
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, key: int) -> OperationView: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[OperationView, ...]: ...
    def __getitem__(self, key: int | slice) -> OperationView | tuple[OperationView, ...]:
        operations = self._graph.operations
        if isinstance(key, slice):
            return tuple(operations[i] for i in self._indexes[key])
        return operations[self._indexes[key]]

    def __iter__(self) -> Iterator[OperationView]:
        operations = self._graph.operations
        return (operations[i] for i in self._indexes)
