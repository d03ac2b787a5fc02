"""Where the nodes of a graph are drawn: in layers from top to bottom, every edge downwards (Sugiyama's method).

A node's layer is the longest way to it. An edge over several layers passes through a place of its own in each, so that
it goes around other nodes. Within a layer, places are ordered by the middle of their neighbours above and below.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing on a grid: columns and layers, both from 0.

    Attributes:
        places: (column, layer) of each node.
        routes: for each edge the places that it goes through, its ends included.
        columns, layers: the size of the grid.
    """

    places: Sequence[tuple[float, int]]
    routes: Sequence[Sequence[tuple[float, int]]]
    columns: float
    layers: int


def layout(count: int, edges: Sequence[Edge]) -> Layout:
    """Places `count` nodes. Edges go from a node to one with a higher number."""
    levels = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        levels[target] = max(levels[target], levels[source] + 1)
    chains, levels, links = _with_dummies(count, edges, levels)
    rows: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for node, level in enumerate(levels):
        rows[level].append(node)
    columns = _ordered(rows, links)
    places = [(columns[node], levels[node]) for node in range(len(levels))]
    widest = max((len(row) for row in rows), default=0)
    return Layout(places[:count], [[places[node] for node in chain] for chain in chains], widest, len(rows))


def _with_dummies(
    count: int, edges: Sequence[Edge], levels: Sequence[int]
) -> tuple[list[list[int]], list[int], list[Edge]]:
    """Cuts long edges into steps of one layer: the nodes of each edge, levels with the new nodes, and the steps."""
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


def _ordered(rows: list[list[int]], links: Sequence[Edge]) -> dict[int, float]:
    """The column of each node, rows centred on one another."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    columns = _columns(rows)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            middle = {node: _mean([columns[other] for other in neighbours[node]], columns[node]) for node in row}
            row.sort(key=middle.__getitem__)
            columns.update(_columns([row], max(map(len, rows))))
    return columns


def _columns(rows: Sequence[Sequence[int]], widest: int | None = None) -> dict[int, float]:
    widest = max((len(row) for row in rows), default=0) if widest is None else widest
    return {node: (widest - len(row)) / 2 + place for row in rows for place, node in enumerate(row)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
