"""What the parts of one execution took: spans of partitions, of operations, and of what else backends tell."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from driver.graph import OperationView
from nnhal.types import Span, SpanKind

MAX_SPANS = 10_000
"""That one execution keeps; a WHILE may run its body any number of times."""


class Spans:
    """All spans of one execution. Thread safe: backends may tell theirs from any thread.

    Attributes:
        began_ns: time.perf_counter_ns() of its making; spans count from there.
        dropped: how many came after MAX_SPANS.
    """

    def __init__(self) -> None:
        self.began_ns = time.perf_counter_ns()
        self.dropped = 0
        self._found: list[Span] = []
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        """Keeps a span, as long as there is room."""
        with self._lock:
            if len(self._found) < MAX_SPANS:
                self._found.append(span)
            else:
                self.dropped += 1

    def all(self) -> tuple[Span, ...]:
        """Those that are kept, in the order in which they ended."""
        with self._lock:
            return tuple(self._found)


class PartitionProfile:
    """The `Profile` that a backend sees: what it tells belongs to one run of one partition."""

    def __init__(self, spans: Spans, backend: str, subgraph: int, operations: Sequence[int]) -> None:
        self._spans = spans
        self._backend = backend
        self._subgraph = subgraph
        self._operations = tuple(operations)

    def span(self, name: str, start_ns: int, duration_ns: int, operation: OperationView | None = None) -> None:
        """Tells of an operation of the partition, or of other work."""
        if operation is None:
            self._add(SpanKind.WORK, name, (), start_ns, duration_ns)
        else:
            self._add(SpanKind.OPERATION, name, (operation.index,), start_ns, duration_ns)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Measures the partition, also one that fails."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            took = time.perf_counter_ns() - began
            self._add(SpanKind.PARTITION, self._backend, self._operations, began, took)

    def _add(self, kind: SpanKind, name: str, operations: tuple[int, ...], start_ns: int, duration_ns: int) -> None:
        start = start_ns - self._spans.began_ns
        self._spans.add(Span(kind, name, self._backend, self._subgraph, operations, start, duration_ns))
