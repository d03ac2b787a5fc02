"""Phases of random data-flow graphs: complete, in an order of execution, and no more than any other order needs."""

import itertools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.phases import OperationPhase, divide_into_phases


@dataclass(frozen=True)
class Node:
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@st.composite
def graphs(draw: st.DrawFn, count: int = 7) -> tuple[list[Node], set[int]]:
    """Return operations of one output each, in an order of execution, and those that are marked."""
    size = draw(st.integers(1, count))
    nodes = [Node(tuple(draw(st.sets(st.integers(-2, i - 1), max_size=3))), (i,)) for i in range(size)]
    return nodes, draw(st.sets(st.integers(0, size - 1)))


def count_alternations(nodes: list[Node], marked: set[int], order: tuple[int, ...]) -> int:
    """Return the number of phases of an order, or a large number if it is not an order of execution."""
    position = {number: i for i, number in enumerate(order)}
    if any(position[source] > position[i] for i in order for source in nodes[i].inputs if source >= 0):
        return len(order) + 1
    return 1 + sum((a in marked) != (b in marked) for a, b in itertools.pairwise(order))


@settings(max_examples=60, deadline=None)
@given(graphs(count=6))
def test_no_order_needs_fewer_phases(graph: tuple[list[Node], set[int]]) -> None:
    nodes, marked = graph
    phases = divide_into_phases(nodes, [int(i in marked) for i in range(len(nodes))])
    fewest = min(count_alternations(nodes, marked, order) for order in itertools.permutations(range(len(nodes))))
    # fewer marked phases come first, at the price of one more of the others
    assert len(phases) <= fewest + 1
    assert sum(phase.kind for phase in phases) <= (fewest + 1) // 2


@settings(max_examples=200, deadline=None)
@given(graphs(count=20), st.data())
def test_phases_are_an_order_of_execution(graph: tuple[list[Node], set[int]], data: st.DataObject) -> None:
    nodes, _ = graph
    drawn = data.draw(st.integers(0, 4 ** len(nodes) - 1))
    kinds = [drawn >> 2 * i & 3 for i in range(len(nodes))]
    left_out = data.draw(st.sets(st.integers(0, len(nodes) - 1)))
    phases = divide_into_phases(nodes, kinds, left_out)
    order = [i for phase in phases for i in phase.operations]
    assert sorted(order) == sorted(set(range(len(nodes))) - left_out)
    done: set[int] = set()
    for i in order:
        assert {source for source in nodes[i].inputs if source >= 0} - left_out <= done
        done.add(i)
    assert all(kinds[i] == phase.kind for phase in phases for i in phase.operations)
    assert all(a.kind != b.kind for a, b in itertools.pairwise(phases))


def test_a_late_start_saves_a_phase() -> None:
    marked_first = [Node((), (0,)), Node((), (1,)), Node((0, 1), (2,))]
    assert divide_into_phases(marked_first, [0, 1, 0]) == [OperationPhase((1,), 1), OperationPhase((0, 2), 0)]
