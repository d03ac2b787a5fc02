"""Partitioning of a graph: connected operations of one backend that can run as a unit, without cycles.

Every operation has a label, the number of its backend. The first cut is by levels. The level of an operation is the
maximum number of label changes on the paths to it. Connected operations of one label and one level form a partition.
Values between partitions then only go to higher levels, so there is no cycle. The second step joins partitions of one
label as long as no cycle arises. For that, the partitions are kept in an order of execution, and only the partitions
between two of them are searched for a path (after Pearce and Kelly, "A dynamic topological sort algorithm for directed
acyclic graphs", 2006).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Container, Mapping, Sequence

from nnhal_driver.graph import VARIABLE_LIFETIMES, Graph

_STEPS_PER_OPERATION = 20
_MIN_STEPS = 10_000
"""Links to follow in all searches together, for each operation and at least. They bound the time for any graph. After
that, nothing more is joined."""


class DataFlow:
    """Exchange of values between the operations of a graph.

    Args:
        without: operations that are left out, with the values that they write.

    Attributes:
        sources: for each operation, the operations whose outputs it reads.
        shared: for each operand with two or more users and not constant, the operations that use it, in order.
        written: the entries of `shared` that begin with the operation that writes the operand.
    """

    def __init__(self, graph: Graph, without: Container[int] = ()) -> None:
        operations = graph.subgraph.operations
        writers = {o: i for i, operation in enumerate(operations) for o in operation.outputs}
        written = {o for o, i in writers.items() if i not in without}
        self.sources = [sorted({writers[o] for o in operation.inputs if o in written}) for operation in operations]
        users: dict[int, list[int]] = defaultdict(list)
        for i, operation in enumerate(operations):
            if i in without:
                continue
            for o in dict.fromkeys((*operation.inputs, *operation.outputs)):
                if graph.operands[o].lifetime in VARIABLE_LIFETIMES and (o in written or o not in writers):
                    users[o].append(i)
        self.shared = [numbers for numbers in users.values() if len(numbers) > 1]
        self.written = [numbers for o, numbers in users.items() if len(numbers) > 1 and o in writers]


class Partitioner:
    """Partitions of a graph. The number of any of its operations identifies a partition.

    Args:
        flow: the data flow of the graph, whose operations are in an order of execution.
        labels: one for each operation.
        check: called between steps; raises to end the work.
    """

    def __init__(self, flow: DataFlow, labels: Sequence[int], check: Callable[[], None] = lambda: None) -> None:
        count = len(labels)
        self._check = check
        self._flow = flow
        self._parents = list(range(count))
        self._labels = list(labels)
        self._steps = max(_MIN_STEPS, _STEPS_PER_OPERATION * count)
        self._connect(_levels(flow, labels))
        self._after: dict[int, set[int]] = {root: set() for root in self._positions}
        self._before: dict[int, set[int]] = {root: set() for root in self._positions}
        for i, sources in enumerate(flow.sources):
            self._link(sources, self.find(i))
        self._join_where_possible()

    def find(self, operation: int) -> int:
        """Return the operation that represents the partition of an operation (union-find)."""
        parents = self._parents
        while parents[operation] != operation:
            parents[operation] = operation = parents[parents[operation]]
        return operation

    def label(self, operation: int) -> int:
        """Return the label of a partition."""
        return self._labels[self.find(operation)]

    def size(self, operation: int) -> int:
        """Return the number of operations of a partition."""
        return len(self._members[self.find(operation)])

    def neighbors(self, operation: int) -> list[int]:
        """Return the partitions that exchange values with a partition."""
        root = self.find(operation)
        return sorted(self._before[root] | self._after[root])

    def relabel(self, operation: int, label: int) -> None:
        """Change the label of a partition, and join it with its neighbors of that label."""
        self._labels[self.find(operation)] = label
        for neighbor in self.neighbors(operation):
            if self.label(neighbor) == label:
                self.join(operation, neighbor)

    def in_order(self) -> list[tuple[int, ...]]:
        """Return the operations of each partition, with the partitions in an order of execution."""
        return [tuple(sorted(self._members[root])) for root in sorted(self._members, key=self._positions.__getitem__)]

    def can_join(self, a: int, b: int) -> bool:
        """Return whether two partitions can be joined without a cycle. False also if the search takes too long."""
        return self._between(*self._sorted(a, b)) is not None

    def join(self, a: int, b: int) -> None:
        """Join two partitions if that is possible."""
        first, last = self._sorted(a, b)
        if first == last or (between := self._between(first, last)) is None:
            return
        sources, followers = (sorted(roots, key=self._positions.__getitem__) for roots in between)
        positions = sorted(self._positions[root] for root in (first, *sources, *followers, last))
        merged = self._merge(first, last)
        for root, position in zip((*sources, merged, *followers), positions, strict=False):
            self._positions[root] = position

    def _merge(self, a: int, b: int) -> int:
        """Merge two partitions. The one with more links represents both, so that few links change."""
        small, large = sorted((a, b), key=lambda root: len(self._before[root]) + len(self._after[root]))
        self._parents[small] = large
        fewer, more = sorted((self._members.pop(small), self._members[large]), key=len)
        more += fewer
        self._members[large] = more
        del self._positions[small]
        for links, reverse in ((self._before, self._after), (self._after, self._before)):
            moved = links.pop(small)
            for neighbor in moved:
                reverse[neighbor].discard(small)
            moved.discard(large)
            for neighbor in moved:
                reverse[neighbor].add(large)
            links[large] |= moved
        return large

    def _connect(self, levels: Sequence[int]) -> None:
        """Join operations of one label and level that use the same value. Order the partitions by level."""
        for operations in self._flow.shared:
            first: dict[tuple[int, int], int] = {}
            for i in operations:
                root = self.find(i)
                self._parents[root] = self.find(first.setdefault((self._labels[i], levels[i]), root))
        self._members: dict[int, list[int]] = defaultdict(list)
        for i in range(len(levels)):
            self._members[self.find(i)].append(i)
        order = sorted(self._members, key=lambda root: (levels[root], self._members[root][0]))
        self._positions = {root: position for position, root in enumerate(order)}

    def _link(self, sources: Sequence[int], root: int) -> None:
        for source in map(self.find, sources):
            if source != root:
                self._after[source].add(root)
                self._before[root].add(source)

    def _join_where_possible(self) -> None:
        """Try to join the writer of each value with its readers, then successive users of the same value."""
        for writer, *readers in self._flow.written:
            self._check()
            for reader in readers:
                if self.label(reader) == self.label(writer):
                    self.join(writer, reader)
        for operations in self._flow.shared:
            self._check()
            latest: dict[int, int] = {}
            for i in operations:
                self.join(latest.get(self.label(i), i), i)
                latest[self.label(i)] = i

    def _sorted(self, a: int, b: int) -> tuple[int, int]:
        a, b = self.find(a), self.find(b)
        return (a, b) if self._positions[a] <= self._positions[b] else (b, a)

    def _between(self, first: int, last: int) -> tuple[list[int], list[int]] | None:
        """Return the partitions between two that the last depends on, and those that depend on the first.

        None if a partition is both, and so must run between them. The search from the last finds it soon.
        """
        sources = self._reachable(last, self._before, first)
        followers = None if sources is None else self._reachable(first, self._after, last)
        return None if sources is None or followers is None else (sources, followers)

    def _reachable(self, start: int, links: Mapping[int, set[int]], end: int) -> list[int] | None:
        """Return the partitions between `start` and `end` that links reach from `start`; None if one reaches `end`."""
        low, high = sorted((self._positions[start], self._positions[end]))
        reached: dict[int, None] = {}
        queue = deque([start])
        while queue:
            root = queue.popleft()
            self._steps -= len(links[root])
            if self._steps < 0:
                return None
            if root != start and end in links[root]:
                return None
            new = [n for n in links[root] if low < self._positions[n] < high and n not in reached]
            reached |= dict.fromkeys(new)
            queue += new
        return list(reached)


def _levels(flow: DataFlow, labels: Sequence[int]) -> list[int]:
    levels = [0] * len(labels)
    for i, sources in enumerate(flow.sources):
        levels[i] = max((levels[s] + (labels[s] != labels[i]) for s in sources), default=0)
    return levels
