"""Cuts a graph into regions: connected operations that may run as a unit, so that regions can run one after another.

Every operation has a label, the number of its backend. The first cut is by levels: the level of an operation is how
often the label must change on the way to it, where it changes most. What is connected and has one label and one level
is a region. From one region to another, values then only go to higher levels, so there is no cycle. In a second step
regions of one label are joined as long as no cycle arises. For that they are kept in an order of execution, and only
what lies between two regions in this order is searched for a path from one to the other (after Pearce and Kelly, "A
dynamic topological sort algorithm for directed acyclic graphs", 2006).
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from driver.graph import Graph
from nnhal.types import OperandLifeTime

_VALUES = (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)
_STEPS = 20
_FEWEST_STEPS = 10_000
"""Links to follow in all searches together, for each operation and at least: no graph may take too long. When they are
used up, nothing more is joined."""


class Flow:
    """Which operations of a graph exchange values.

    Attributes:
        sources: for each operation those whose outputs it reads.
        shared: the operations that touch one operand, in order, for each that is no constant and has two or more.
        written: of those, the ones that begin with the operation that writes the operand.
    """

    def __init__(self, graph: Graph) -> None:
        operations = graph.subgraph.operations
        writers = {o: i for i, operation in enumerate(operations) for o in operation.outputs}
        self.sources = [sorted({writers[o] for o in one.inputs if o in writers}) for one in operations]
        touched: dict[int, list[int]] = defaultdict(list)
        for i, operation in enumerate(operations):
            for o in dict.fromkeys((*operation.inputs, *operation.outputs)):
                if graph.operands[o].lifetime in _VALUES:
                    touched[o].append(i)
        self.shared = [found for found in touched.values() if len(found) > 1]
        self.written = [found for o, found in touched.items() if len(found) > 1 and o in writers]


class Regions:
    """The regions of a graph. A region is known by the number of any of its operations.

    Args:
        flow: of the graph, whose operations are in an order of execution.
        labels: one for each operation.
    """

    def __init__(self, flow: Flow, labels: Sequence[int]) -> None:
        count = len(labels)
        self._flow = flow
        self._parents = list(range(count))
        self._labels = list(labels)
        self._steps = max(_FEWEST_STEPS, _STEPS * count)
        self._connect(_levels(flow, labels))
        self._after: dict[int, set[int]] = {region: set() for region in self._positions}
        self._before: dict[int, set[int]] = {region: set() for region in self._positions}
        for i, sources in enumerate(flow.sources):
            self._link(sources, self.find(i))
        self._join_where_possible()

    def find(self, operation: int) -> int:
        """The number by which the region of an operation is told from others."""
        parents = self._parents
        while parents[operation] != operation:
            parents[operation] = operation = parents[parents[operation]]
        return operation

    def label(self, region: int) -> int:
        """The label of a region."""
        return self._labels[self.find(region)]

    def size(self, region: int) -> int:
        """How many operations a region has."""
        return len(self._members[self.find(region)])

    def neighbours(self, region: int) -> list[int]:
        """The regions with which a region exchanges values."""
        region = self.find(region)
        return sorted(self._before[region] | self._after[region])

    def relabel(self, region: int, label: int) -> None:
        """Gives a region another label and joins it with its neighbours of that label."""
        self._labels[self.find(region)] = label
        for neighbour in self.neighbours(region):
            if self.label(neighbour) == label:
                self.join(region, neighbour)

    def in_order(self) -> list[tuple[int, ...]]:
        """The operations of each region; the regions in an order of execution."""
        return [
            tuple(sorted(self._members[region])) for region in sorted(self._members, key=self._positions.__getitem__)
        ]

    def can_join(self, one: int, other: int) -> bool:
        """Whether two regions can become one without a cycle; "no" as well where the search takes too long."""
        return self._between(*self._sorted(one, other)) is not None

    def join(self, one: int, other: int) -> None:
        """Makes one region of two, if they can become one."""
        first, last = self._sorted(one, other)
        if first == last or (between := self._between(first, last)) is None:
            return
        sources, followers = (sorted(found, key=self._positions.__getitem__) for found in between)
        places = sorted(self._positions[region] for region in (first, *sources, *followers, last))
        merged = self._merge(first, last)
        for region, place in zip((*sources, merged, *followers), places, strict=False):
            self._positions[region] = place

    def _merge(self, one: int, other: int) -> int:
        """Makes one region of two; it goes by the number of that with more links, so that few must be changed."""
        small, large = sorted((one, other), key=lambda region: len(self._before[region]) + len(self._after[region]))
        self._parents[small] = large
        fewer, more = sorted((self._members.pop(small), self._members[large]), key=len)
        more += fewer
        self._members[large] = more
        del self._positions[small]
        for links, reverse in ((self._before, self._after), (self._after, self._before)):
            moved = links.pop(small)
            for neighbour in moved:
                reverse[neighbour].discard(small)
            moved.discard(large)
            for neighbour in moved:
                reverse[neighbour].add(large)
            links[large] |= moved
        return large

    def _connect(self, levels: Sequence[int]) -> None:
        """Joins operations of one label and level that touch the same value; orders the regions by level."""
        for operations in self._flow.shared:
            first: dict[tuple[int, int], int] = {}
            for i in operations:
                root = self.find(i)
                self._parents[root] = self.find(first.setdefault((self._labels[i], levels[i]), root))
        self._members: dict[int, list[int]] = defaultdict(list)
        for i in range(len(levels)):
            self._members[self.find(i)].append(i)
        order = sorted(self._members, key=lambda region: (levels[region], self._members[region][0]))
        self._positions = {region: place for place, region in enumerate(order)}

    def _link(self, sources: Sequence[int], region: int) -> None:
        for source in map(self.find, sources):
            if source != region:
                self._after[source].add(region)
                self._before[region].add(source)

    def _join_where_possible(self) -> None:
        """Tries the writer of each value with all that read it, then those that touch it one after the other."""
        for writer, *readers in self._flow.written:
            for reader in readers:
                if self.label(reader) == self.label(writer):
                    self.join(writer, reader)
        for operations in self._flow.shared:
            latest: dict[int, int] = {}
            for i in operations:
                self.join(latest.get(self.label(i), i), i)
                latest[self.label(i)] = i

    def _sorted(self, one: int, other: int) -> tuple[int, int]:
        one, other = self.find(one), self.find(other)
        return (one, other) if self._positions[one] <= self._positions[other] else (other, one)

    def _between(self, first: int, last: int) -> tuple[list[int], list[int]] | None:
        """What lies between two regions in order: what the last needs values of, and what needs values of the first.

        None where some region does both, and must run between them: seen from the last, it is near.
        """
        sources = self._reached(last, self._before, first)
        followers = None if sources is None else self._reached(first, self._after, last)
        return None if sources is None or followers is None else (sources, followers)

    def _reached(self, start: int, links: Mapping[int, set[int]], end: int) -> list[int] | None:
        """Regions that are reached from `start` by links, on this side of `end`; None where one of them reaches it."""
        low, high = sorted((self._positions[start], self._positions[end]))
        found: dict[int, None] = {}
        queue = deque([start])
        while queue:
            region = queue.popleft()
            self._steps -= len(links[region])
            if self._steps < 0:
                return None
            if region != start and end in links[region]:
                return None
            new = [n for n in links[region] if low < self._positions[n] < high and n not in found]
            found |= dict.fromkeys(new)
            queue += new
        return list(found)


def _levels(flow: Flow, labels: Sequence[int]) -> list[int]:
    levels = [0] * len(labels)
    for i, sources in enumerate(flow.sources):
        levels[i] = max((levels[s] + (labels[s] != labels[i]) for s in sources), default=0)
    return levels
