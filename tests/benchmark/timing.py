"""Timing of calls, for the benchmarks."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

R = TypeVar("R")


@dataclass(frozen=True)
class CallCost:
    """Cost of one call.

    Attributes:
        us: the median duration, in microseconds.
        processor_us: the mean processor time of this process and its children, in microseconds.
    """

    us: float
    processor_us: float


def elapsed_ms(work: Callable[[], R]) -> tuple[float, R]:
    """Return how long a function runs, in milliseconds, and its result. Freeing the result is not measured."""
    start = time.perf_counter_ns()
    result = work()
    return (time.perf_counter_ns() - start) / 1e6, result


def median_us(call: Callable[[], object], count: int) -> float:
    """Return the median duration of calls one after the other, in microseconds."""
    durations = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        durations.append(time.perf_counter_ns() - start)
    return statistics.median(durations) / 1e3


def checked_median_us(call: Callable[[], bytes], count: int, expected: bytes) -> float:
    """Return `median_us` after a warm-up that checks each output.

    Raises:
        RuntimeError: an output differs from `expected`.
    """
    _warm_up(call, count, expected)
    return median_us(call, count)


def checked_cost(call: Callable[[], bytes], count: int, expected: bytes) -> CallCost:
    """Return the cost of a call after a warm-up that checks each output.

    Raises:
        RuntimeError: an output differs from `expected`.
    """
    _warm_up(call, count, expected)
    processes = own_processes()
    before_s = processor_s(processes)
    duration_us = median_us(call, count)
    return CallCost(duration_us, (processor_s(processes) - before_s) / count * 1e6)


def _warm_up(call: Callable[[], bytes], count: int, expected: bytes) -> None:
    for _ in range(max(3, count // 5)):
        if (output := call()) != expected:
            raise RuntimeError(f"the output starts with {output[:16]!r}; expected {expected[:16]!r}")


def own_processes() -> list[int]:
    """Return the ids of this process and of all its descendants, among them the servers that it started."""
    own = psutil.Process()
    return [own.pid, *(child.pid for child in own.children(recursive=True))]


def processor_s(processes: Sequence[int]) -> float:
    """Return the seconds of processor time that processes have used, exact to less than a microsecond.

    The fields of /proc count ticks of 10 ms, which is more than a short measurement takes.
    """
    # clock_getcpuclockid of the C library, which Python lacks: CPUCLOCK_SCHED of a process
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in processes)
