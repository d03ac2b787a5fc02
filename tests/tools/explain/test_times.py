"""Times of operations, what lies between them, and the comparison with an ordinary execution."""

import numpy as np
import pytest

from nnhal.client.core.arrays import Outputs
from nnhal.client.core.profile import ExecutionProfile
from nnhal.types import Span, SpanKind, Timing
from nnhal_tools.explain.times import PartitionTimes, RunTimes, partition_times, repeat, run_times

PART, OP, WORK, STAGE = SpanKind.PARTITION, SpanKind.OPERATION, SpanKind.WORK, SpanKind.STAGE
SPANS = (
    Span(STAGE, "queue", "", 0, (), -40, 40),
    Span(OP, "ADD", "a", 0, (0,), 110, 300),
    Span(WORK, "set up profiling", "a", 0, (), 420, 50),
    Span(OP, "MUL", "a", 0, (1,), 480, 100),
    Span(PART, "a", "a", 0, (0, 1), 100, 500),
    Span(OP, "SUB", "b", 1, (0,), 720, 100),  # the body of a WHILE
    Span(PART, "b", "b", 1, (0,), 710, 200),
    Span(PART, "driver", "driver", 0, (2,), 700, 250),
    Span(PART, "c", "c", 0, (3,), 1000, 150),
    Span(STAGE, "execute", "", 0, (), 0, 1200),
)
TIMES = (
    PartitionTimes((0, 1), 500, 400, 50),
    PartitionTimes((2,), 250, 100, 0),
    PartitionTimes((3,), 150, 0, 0),
)


def test_partitions_contain_operations_and_other_work() -> None:
    assert partition_times(SPANS) == TIMES
    assert [times.between_ns for times in TIMES] == [50, 150, 0]


def test_rest_of_the_execution_is_between_operations() -> None:
    profile = ExecutionProfile(Outputs.of([np.zeros(1)], (), Timing(1000, 2000)), SPANS, 0)
    times = run_times(profile, 800)
    assert times.operations_ns == 400 + 100 + 150
    assert times.operations_ns + times.between_ns == times.profiled_ns == 1000
    assert times.as_json() == {"ordinary_us": 0.8, "profiled_us": 1.0, "operations_us": 0.65, "between_us": 0.35}


@pytest.mark.parametrize(
    ("ordinary_ns", "comparison"),
    [
        (2_000_000, "It was slower than an ordinary one: 2.000 ms, ratio 1.50."),
        (4_000_000, "An ordinary one took 4.000 ms."),
    ],
)
def test_slower_profiled_execution_is_told(ordinary_ns: int, comparison: str) -> None:
    times = RunTimes(ordinary_ns, 3_000_000, (PartitionTimes((0,), 2_900_000, 2_400_000, 0),))
    assert times.text() == (
        "The profiled execution took 3.000 ms on the device: operations 2.400 ms (80.0%), between operations 0.600 ms. "
        + comparison
    )


def test_repetition_ends_after_some_time() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0, 4.0])
    results = iter("abcdef")
    assert repeat(lambda: next(results), 5, lambda: next(times), max_s=2.5) == ["a", "b", "c"]
    assert repeat(lambda: next(results), 2, lambda: 0.0) == ["d", "e"]
    assert repeat(lambda: next(results), 2, lambda: 0.0, max_s=0) == ["f"]
