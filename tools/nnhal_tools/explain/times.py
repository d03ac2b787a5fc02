"""Times of a profiled execution: operations, what lies between them, and an ordinary execution for comparison."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nnhal.types import Span, SpanKind

if TYPE_CHECKING:
    from nnhal.client.core.profile import ExecutionProfile

T = TypeVar("T")

_MAX_S = 10.0


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """Times of one run of a partition of main, in nanoseconds.

    Attributes:
        operations_ns: its single operations; 0 if the backend does not report them.
        other_ns: other work that the backend reports.
    """

    operations: tuple[int, ...]
    total_ns: int
    operations_ns: int
    other_ns: int

    @property
    def between_ns(self) -> int:
        """Time that belongs to no span: copies between operations, and the driver. 0 if no operation is reported."""
        return max(0, self.total_ns - self.operations_ns - self.other_ns) if self.operations_ns else 0


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Times on the device of a profiled execution and of an ordinary one, in nanoseconds.

    Attributes:
        partitions: its partitions of main.
    """

    ordinary_ns: int
    profiled_ns: int
    partitions: tuple[PartitionTimes, ...]

    @property
    def operations_ns(self) -> int:
        """Time in single operations. A partition whose backend does not report them counts as a whole."""
        return sum(partition.operations_ns or partition.total_ns for partition in self.partitions)

    @property
    def between_ns(self) -> int:
        """Time outside of operations: copies between them, other work of backends, and the driver."""
        return max(0, self.profiled_ns - self.operations_ns)

    @property
    def ratio(self) -> float:
        """Time of the profiled execution in relation to the ordinary one."""
        return self.profiled_ns / self.ordinary_ns if self.ordinary_ns > 0 else 1.0

    def as_json(self) -> dict[str, Any]:
        """Return the times in microseconds."""
        return {
            "ordinary_us": self.ordinary_ns / 1e3,
            "profiled_us": self.profiled_ns / 1e3,
            "operations_us": self.operations_ns / 1e3,
            "between_us": self.between_ns / 1e3,
        }

    def text(self) -> str:
        """Return the times as sentences, with a warning if the profiled execution was slower."""
        share = self.operations_ns / self.profiled_ns if self.profiled_ns else 0.0
        parts = f"operations {_ms(self.operations_ns)} ({share:.1%}), between operations {_ms(self.between_ns)}"
        profiled = f"The profiled execution took {_ms(self.profiled_ns)} on the device: {parts}."
        if self.ratio > 1:
            return f"{profiled} It was slower than an ordinary one: {_ms(self.ordinary_ns)}, ratio {self.ratio:.2f}."
        return f"{profiled} An ordinary one took {_ms(self.ordinary_ns)}."


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f} ms"


def run_times(profile: "ExecutionProfile", ordinary_ns: int) -> RunTimes:
    """Return the times of a profiled execution, and of an ordinary one."""
    return RunTimes(ordinary_ns, profile.outputs.timing.time_on_device_ns, partition_times(profile.spans))


def partition_times(spans: Sequence[Span]) -> tuple[PartitionTimes, ...]:
    """Return the times of the partitions of main, in order of execution."""
    inner = sorted((s for s in spans if s.kind in (SpanKind.OPERATION, SpanKind.WORK)), key=lambda s: s.start_ns)
    starts = [span.start_ns for span in inner]
    partitions = sorted(
        (s for s in spans if s.kind == SpanKind.PARTITION and s.subgraph == 0), key=lambda s: s.start_ns
    )
    return tuple(_partition_times(whole, inner, starts) for whole in partitions)


def _partition_times(whole: Span, inner: Sequence[Span], starts: Sequence[int]) -> PartitionTimes:
    first, end = bisect_left(starts, whole.start_ns), bisect_right(starts, whole.start_ns + whole.duration_ns)
    sums = {SpanKind.OPERATION: 0, SpanKind.WORK: 0}
    for span in inner[first:end]:
        sums[SpanKind(span.kind)] += span.duration_ns
    return PartitionTimes(whole.operations, whole.duration_ns, sums[SpanKind.OPERATION], sums[SpanKind.WORK])


def repeat(
    function: Callable[[], T], count: int, clock: Callable[[], float] = time.monotonic, max_s: float = _MAX_S
) -> list[T]:
    """Call a function several times, but end after some seconds. At least one call is made."""
    end = clock() + max_s
    results = [function()]
    while len(results) < count and clock() < end:
        results.append(function())
    return results
