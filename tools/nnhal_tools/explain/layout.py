"""Layered drawing of a graph, from top to bottom with every edge downwards (Sugiyama's method).

A node's layer is the length of the longest path to it. An edge over several layers has a position of its own in each,
so that it goes around other nodes. Within a layer, the mean of the neighbors above and below decides the order.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Positions on a grid of columns and layers, both from 0.

    Attributes:
        positions: (column, layer) of each node.
        routes: for each edge, the positions of its nodes and those in between.
    """

    positions: Sequence[tuple[float, int]]
    routes: Sequence[Sequence[tuple[float, int]]]
    columns: float
    layers: int


def layout_graph(count: int, edges: Sequence[Edge]) -> GraphLayout:
    """Compute the positions of `count` nodes. Edges go from a node to one with a higher number."""
    levels = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        levels[target] = max(levels[target], levels[source] + 1)
    chains, levels, links = _split_edges(count, edges, levels)
    rows: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for node, level in enumerate(levels):
        rows[level].append(node)
    columns = _order_rows(rows, links)
    positions = [(columns[node], levels[node]) for node in range(len(levels))]
    widest = max((len(row) for row in rows), default=0)
    return GraphLayout(positions[:count], [[positions[node] for node in chain] for chain in chains], widest, len(rows))


def _split_edges(
    count: int, edges: Sequence[Edge], levels: Sequence[int]
) -> tuple[list[list[int]], list[int], list[Edge]]:
    """Split long edges into links of one layer. Return the nodes of each edge, all levels, and the links."""
    levels = list(levels)
    chains: list[list[int]] = []
    links: list[Edge] = []
    for source, target in edges:
        chain = [source]
        for level in range(levels[source] + 1, levels[target]):
            chain.append(len(levels))
            levels.append(level)
        chain.append(target)
        chains.append(chain)
        links += pairwise(chain)
    return chains, levels, links


def _order_rows(rows: list[list[int]], links: Sequence[Edge]) -> dict[int, float]:
    """Order the nodes of each row, and return the column of each node. Rows are centered."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    columns = _columns(rows)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbors = above if downwards else below
        for row in rows if downwards else reversed(rows):
            means = {node: _mean([columns[other] for other in neighbors[node]], columns[node]) for node in row}
            row.sort(key=means.__getitem__)
            columns.update(_columns([row], max(map(len, rows))))
    return columns


def _columns(rows: Sequence[Sequence[int]], widest: int | None = None) -> dict[int, float]:
    widest = max((len(row) for row in rows), default=0) if widest is None else widest
    return {node: (widest - len(row)) / 2 + index for row in rows for index, node in enumerate(row)}


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
