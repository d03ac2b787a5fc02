"""The layout: every edge goes down, no two nodes overlap, no edge crosses a node."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal_tools.explain.layout import layout_graph


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
    drawn = layout_graph(count, edges)
    assert len(set(drawn.positions)) == count
    assert all(0 <= column <= drawn.columns - 1 and 0 <= layer < drawn.layers for column, layer in drawn.positions)
    for (source, target), route in zip(edges, drawn.routes, strict=True):
        assert (route[0], route[-1]) == (drawn.positions[source], drawn.positions[target])
        layers = [layer for _, layer in route]
        assert layers == list(range(layers[0], layers[-1] + 1))
        assert not set(route[1:-1]) & set(drawn.positions)


def test_chain_is_straight_and_shortcut_goes_beside_it() -> None:
    drawn = layout_graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [layer for _, layer in drawn.positions] == [0, 1, 2, 3]
    columns = [column for column, _ in drawn.positions]
    assert columns[0] == columns[3] and columns[1] == columns[2]
    shortcut = [column for column, _ in drawn.routes[3]]
    assert shortcut[1] == shortcut[2] != columns[1]


def test_empty_graph_has_no_layers() -> None:
    assert layout_graph(0, []).layers == 0
