"""Conversion of a plan to a document with arrays, and back.

The document holds graphs with their constants, and for each partition what its backend saved.

Loading validates, places and optimizes nothing. Operands, operations and constants are decoded on first use. A backend
that saved all it needs never uses most of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar, overload

from nnhal.types import AnyArray, Operand, Operation, Partition, Placement, Subgraph
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Sections
from nnhal_driver.backends.boundary.subgraphs import compile_subgraph, load_subgraph
from nnhal_driver.compilation.backend_hooks import with_hooks
from nnhal_driver.compilation.optimization import CompositeSubgraph, optimize_and_compile
from nnhal_driver.compilation.placement import partitions_by_subgraph
from nnhal_driver.execution.control_flow import If, While, control_flow_node
from nnhal_driver.execution.plan import Node, PartitionNode, Plan
from nnhal_driver.graph import Graph, SubgraphView
from nnhal_driver.model_cache.codec import decode, encode
from nnhal_driver.model_cache.container import Container, ContainerWriter, Document, Row

T = TypeVar("T")


def save_plan(plan: Plan, placement: Placement, writer: ContainerWriter) -> Document:
    """Add all arrays of a plan to a container and return the document that describes it."""
    saver = _Saver(placement, writer)
    saver.add_plan(plan)
    graphs = []
    for graph in saver.graphs:
        constants = [[operand, writer.add_array(array)] for operand, array in graph.constants.items()]
        subgraph = _saved_subgraph(graph.subgraph, writer)
        graphs.append([graph.number, subgraph, constants, [*graph.extensions.items()]])
    return {"placement": encode(Placement, placement), "graphs": graphs, "plans": saver.plans}


def _saved_subgraph(subgraph: Subgraph, writer: ContainerWriter) -> Row:
    """Return inputs, outputs and their operands, and the number of a blob with the rest, which is rarely needed."""
    operands, operations, inputs, outputs = encode(Subgraph, subgraph)
    boundary = [[index, operands[index]] for index in sorted({*inputs, *outputs})]
    rest = json.dumps([operands, operations], separators=(",", ":")).encode()
    return [writer.add_blob(rest), [len(operands), len(operations)], boundary, inputs, outputs]


class _Saver:
    """Graphs and plans collected for saving. Each plan comes after those that it runs."""

    def __init__(self, placement: Placement, writer: ContainerWriter) -> None:
        self.graphs: list[Graph] = []
        self.plans: list[Row] = []
        self._writer = writer
        self._graph_numbers: dict[int, int] = {}
        self._done: set[int] = set()
        self._partitions = partitions_by_subgraph(placement)

    def add_plan(self, plan: Plan) -> None:
        number = plan.graph.number
        if number in self._done:
            return
        self._done.add(number)
        nodes = [self._node(*pair) for pair in zip(plan.nodes, self._partitions[number], strict=True)]
        self.plans.append([self._graph(plan.graph), nodes])

    def _node(self, node: Node, partition: Partition) -> Row:
        match node:
            case PartitionNode():
                return self._row(node, partition.backend, self._saved(node.compiled))
            case If(view=view, then=first, otherwise=second) | While(view=view, condition=first, body=second):
                self.add_plan(first)
                self.add_plan(second)
                return [None, view.index]
            case _:
                raise TypeError(f"{type(node).__name__} has no form in the cache")

    def _row(self, step: PartitionNode, backend: str, saved: Row | None) -> Row:
        view = step.view
        indexes = [operation.index for operation in view.operations]
        described = [self._graph(view.graph), indexes, view.inputs, view.outputs, view.relaxed]
        return [backend, described, sorted(step.used_later), saved]

    def _saved(self, compiled: CompiledSubgraph) -> Row | None:
        """Return what a backend saved of a partition.

        None means "optimize and compile again", [] "compile again". For an optimized partition the row is None and a
        list with a row for each part.
        """
        if not isinstance(compiled, CompositeSubgraph):
            return self._sections(compiled.save())
        saved = [step.compiled.save() for step in compiled.nodes]
        if any(saved[number] is None for number in compiled.substituted):
            return None
        parts = zip(compiled.nodes, saved, strict=True)
        return [None, [self._row(step, step.backend, self._sections(sections) or []) for step, sections in parts]]

    def _sections(self, sections: Sections | None) -> Row | None:
        if sections is None:
            return None
        return [self._writer.add_blob(sections.model), [self._writer.add_array(array) for array in sections.data]]

    def _graph(self, graph: Graph) -> int:
        """Return the number of a graph in the document. A partition may have a graph that its backend made."""
        if id(graph) not in self._graph_numbers:
            self._graph_numbers[id(graph)] = len(self.graphs)
            self.graphs.append(graph)
        return self._graph_numbers[id(graph)]


def load_graphs(container: Container) -> list[Graph]:
    """Return the graphs that were saved; the first is not always main."""
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
    """Return a subgraph that decodes most of its parts on first use."""
    rest, (operand_count, operation_count), boundary, inputs, outputs = row

    @cache
    def rows() -> Row:
        decoded: Row = json.loads(container.blob(rest))
        return decoded

    decoded_operands = {index: decode(Operand, encoded) for index, encoded in boundary}
    operands = _LazySequence(operand_count, lambda i: decode(Operand, rows()[0][i]), decoded_operands)
    operations = _LazySequence(operation_count, lambda i: decode(Operation, rows()[1][i]))
    return Subgraph(operands, operations, tuple(inputs), tuple(outputs))  # type: ignore[arg-type]


def load_plan(
    container: Container,
    graphs: Sequence[Graph],
    backends: Mapping[str, Backend],
    options: CompileOptions,
) -> Plan:
    """Return the plan that was saved, given the result of `load_graphs`, the backends by id, and options for compiling.

    Raises:
        HalError: a backend cannot load a part, or raised by `options.check`, which is called between partitions.
    """
    plans: dict[int, Plan] = {}
    for index, rows in container.document["plans"]:
        graph = graphs[index]
        nodes: list[Node] = []
        for row in rows:
            options.check()
            if row[0] is None:
                nodes.append(control_flow_node(graph.operations[row[1]], plans))
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
) -> PartitionNode:
    options.check()
    backend, (number, indexes, inputs, outputs, relaxed), read_again, saved = row
    graph = graphs[number]
    # the graph binds its operations on first access
    operations = _LazySequence(len(indexes), lambda i: graph.operations[indexes[i]])
    view = SubgraphView(graph, operations, tuple(inputs), tuple(outputs), relaxed)
    if saved and saved[0] is None:
        parts = [_step(part, container, graphs, backends, options) for part in saved[1]]
        compiled: CompiledSubgraph = CompositeSubgraph(view, parts)
    else:
        compiled = _compiled(view, saved, container, backends[backend], options)
    return PartitionNode(backend, view, compiled, frozenset(read_again))


def _compiled(
    view: SubgraphView, sections: Row | None, container: Container, backend: Backend, options: CompileOptions
) -> CompiledSubgraph:
    if sections is None:
        return optimize_and_compile(backend, view, options)
    if not sections:
        return with_hooks(backend, view, options, lambda: compile_subgraph(backend, view, options))
    model, data = sections
    saved = Sections(container.blob(model), tuple(map(container.array, data)))
    return with_hooks(backend, view, options, lambda: load_subgraph(backend, view, saved, options))


class _LazySequence(Sequence[T]):
    """Sequence of `count` items, each made on first access. `known`: items that exist already, by index."""

    def __init__(self, count: int, make: Callable[[int], T], known: dict[int, T] | None = None) -> None:
        self._count = count
        self._make = make
        self._items = known or {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: int | slice) -> T | tuple[T, ...]:
        selected = range(self._count)[key]
        return self._item(selected) if isinstance(selected, int) else tuple(map(self._item, selected))

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(self._count))

    def _item(self, index: int) -> T:
        if index not in self._items:
            self._items[index] = self._make(index)
        return self._items[index]


class _Constants(Mapping[int, AnyArray]):
    """Constants of a graph. Each array is created on first access."""

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
