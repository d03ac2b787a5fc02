"""Profiling of one execution: spans of partitions, of operations and of other work of backends."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal.types import Span, SpanKind
from nnhal_driver.graph import OperationView

MAX_SPANS = 10_000
"""Maximum number of spans of one execution; a WHILE may run its body any number of times."""


class SpanRecorder:
    """Recorder of the spans of one execution. Thread safe: backends may report from any thread.

    Attributes:
        start_ns: time.perf_counter_ns() of its creation; spans are relative to it.
        dropped: number of spans in excess of MAX_SPANS.
    """

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self.dropped = 0
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        """Record a span, or count it as dropped."""
        with self._lock:
            if len(self._spans) < MAX_SPANS:
                self._spans.append(span)
            else:
                self.dropped += 1

    def all(self) -> tuple[Span, ...]:
        """Return the recorded spans in the order in which they ended."""
        with self._lock:
            return tuple(self._spans)


class PartitionProfile:
    """The `Profile` that a backend sees. Its spans belong to one run of one partition."""

    def __init__(self, spans: SpanRecorder, backend: str, subgraph: int, operations: Sequence[int]) -> None:
        self._spans = spans
        self._backend = backend
        self._subgraph = subgraph
        self._operations = tuple(operations)

    def span(self, name: str, start_ns: int, duration_ns: int, operation: OperationView | None = None) -> None:
        """Record an operation of the partition, or other work."""
        if operation is None:
            self._add(SpanKind.WORK, name, (), start_ns, duration_ns)
        else:
            self._add(SpanKind.OPERATION, name, (operation.index,), start_ns, duration_ns)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Record the run of the partition, even if it fails."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            duration = time.perf_counter_ns() - start
            self._add(SpanKind.PARTITION, self._backend, self._operations, start, duration)

    def _add(self, kind: SpanKind, name: str, operations: tuple[int, ...], start_ns: int, duration_ns: int) -> None:
        start = start_ns - self._spans.start_ns
        self._spans.add(Span(kind, name, self._backend, self._subgraph, operations, start, duration_ns))
