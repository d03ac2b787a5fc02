"""Profiling of one execution: spans of its stages, of partitions, of operations and of other work of backends."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from nnhal.types import ExecutionResult, Span, SpanKind
from nnhal_driver.graph import OperationView

MAX_SPANS = 10_000
"""Maximum number of spans of one execution, besides its stages; a WHILE may run its body any number of times."""


class SpanRecorder:
    """Recorder of the spans of one execution. Thread safe: backends may report from any thread.

    Args:
        operations: whether backends report their operations too, for which some run a model in another way.

    Attributes:
        operations: see above.
        start_ns: time.perf_counter_ns() of the start of the execution, or of the recorder; spans are relative to it.
        dropped: number of spans in excess of MAX_SPANS.
        execution: number of the execution for backends; 0 before it begins.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns, *, operations: bool = True) -> None:
        self._clock = clock
        self.operations = operations
        self.start_ns = clock()
        self.dropped = 0
        self.execution = 0
        self._spans: list[Span] = []
        self._room = MAX_SPANS
        self._lock = threading.Lock()

    def note_decoded(self) -> None:
        """Note that the call has been decoded, if that was after the creation of this object."""
        self.start_ns = self._clock()

    def add(self, span: Span) -> None:
        """Record a span, or count it as dropped."""
        with self._lock:
            if self._room > 0:
                self._room -= 1
                self._spans.append(span)
            else:
                self.dropped += 1

    def begin(self, received_ns: int, fenced_ns: int | None = None) -> None:
        """Note the start of the execution, which has its slot, and record the stages before it.

        Args:
            received_ns: time.perf_counter_ns() of the call. It was decoded until the creation of this object.
            fenced_ns: that of the last signal of the fences that a fenced execution waited for.
        """
        queued_ns, self.start_ns = self.start_ns, self._clock()
        self._add_stage("decode", received_ns, queued_ns)
        if fenced_ns is not None:
            fenced_ns = max(queued_ns, fenced_ns)
            self._add_stage("fences", queued_ns, fenced_ns)
            queued_ns = fenced_ns
        self._add_stage("queue", queued_ns, self.start_ns)

    def end(self) -> None:
        """Record the stage of the execution, which has ended."""
        self._add_stage("execute", self.start_ns, self._clock())

    def _add_stage(self, name: str, start_ns: int, end_ns: int) -> None:
        self._spans.append(_stage(name, start_ns - self.start_ns, end_ns - start_ns))

    def all(self) -> tuple[Span, ...]:
        """Return the recorded spans in the order in which they ended."""
        with self._lock:
            return tuple(self._spans)


def _stage(name: str, start_ns: int, duration_ns: int) -> Span:
    return Span(SpanKind.STAGE, name, "", 0, (), start_ns, duration_ns)


def later_stage(
    name: str,
    result: ExecutionResult,
    received_ns: int,
    started_ns: int,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Span:
    """Return a stage that follows a profiled execution and ends now.

    The times, of time.perf_counter_ns(), are those of the receipt of the call, with which the first span of the result
    began, and of the start of the stage.
    """
    start_ns = result.spans[0].start_ns + started_ns - received_ns
    return _stage(name, start_ns, clock() - started_ns)


class PartitionProfile:
    """The `Profile` that a backend sees. Its spans belong to one run of one partition."""

    def __init__(self, spans: SpanRecorder, backend: str, subgraph: int, operations: Sequence[int]) -> None:
        self._spans = spans
        self._backend = backend
        self._subgraph = subgraph
        self._operations = tuple(operations)

    @property
    def execution(self) -> int:
        """Number of the execution."""
        return self._spans.execution

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
