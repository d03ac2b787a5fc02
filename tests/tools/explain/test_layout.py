"""The drawing: every edge downwards, no two nodes in one place, no edge through a node."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tools.explain.layout import layout


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 25))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=40, unique=True)) if count > 1 else []
    return count, edges


@given(graphs())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_edges_go_down_and_around_nodes(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    drawn = layout(count, edges)
    assert len(set(drawn.places)) == count
    assert all(0 <= column <= drawn.columns - 1 and 0 <= layer < drawn.layers for column, layer in drawn.places)
    for (source, target), route in zip(edges, drawn.routes, strict=True):
        assert (route[0], route[-1]) == (drawn.places[source], drawn.places[target])
        layers = [layer for _, layer in route]
        assert layers == list(range(layers[0], layers[-1] + 1))
        assert not set(route[1:-1]) & set(drawn.places)


def test_a_chain_is_straight_and_a_shortcut_goes_beside_it() -> None:
    drawn = layout(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [layer for _, layer in drawn.places] == [0, 1, 2, 3]
    columns = [column for column, _ in drawn.places]
    assert columns[0] == columns[3] and columns[1] == columns[2]
    shortcut = [column for column, _ in drawn.routes[3]]
    assert shortcut[1] == shortcut[2] != columns[1]


def test_nothing_needs_no_room() -> None:
    assert layout(0, []).layers == 0
