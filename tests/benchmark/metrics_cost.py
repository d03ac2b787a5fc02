"""Cost of the metrics of one call, and of other ways to count it.

`python -m tests.benchmark.metrics_cost` prints nanoseconds for each call: the best of several rounds that alternate.
Times differ between machines, so nothing fails.
"""

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from nnhal.types import ExecutionResult
from nnhal_service.metrics.calls import CallMeter, MeteredCall, SeriesKey
from nnhal_service.metrics.catalog import DURATION_BOUNDS, QUEUE_BOUNDS
from nnhal_service.metrics.series import CallSeries

CALLS = 1000
ROUNDS = 300
DIGEST = bytes(range(32))


class _Client:
    """Session of a client."""

    def __init__(self) -> None:
        self.identity = "anonymous"
        self.series: dict[SeriesKey, CallSeries] = {}


class _Model:
    """Prepared model."""

    digest = DIGEST
    device = "nnhal"


def metered() -> Callable[[], None]:
    """Return a loop of calls as a service counts them."""
    meter, client, model, result = CallMeter(), _Client(), _Model(), ExecutionResult(True)

    def run() -> None:
        for _ in range(CALLS):
            with meter.start(client, model, "unary", time.perf_counter_ns(), 600) as call:
                call.device_ns = 50_000
                call.note(result, 400)

    return run


def buffered() -> Callable[[], None]:
    """Return a loop that appends what was measured to a buffer, and counts it later."""
    meter, client, model, result = CallMeter(), _Client(), _Model(), ExecutionResult(True)
    series, buffer = meter.start(client, model, "unary", 0)._series, deque[tuple[MeteredCall, int]]()

    def run() -> None:
        for number in range(CALLS):
            call = meter.start(client, model, "unary", time.perf_counter_ns(), 600)
            call.device_ns = 50_000
            call.note(result, 400)
            buffer.append((call, time.perf_counter_ns()))
            if number % 500 == 499:
                while buffer:
                    series.add(*buffer.popleft())

    return run


def library() -> Callable[[], None]:
    """Return a loop that counts with the objects of prometheus_client."""
    registry, labels = CollectorRegistry(), ["identity", "device", "model", "path"]
    duration = Histogram("duration", "", labels, registry=registry, buckets=DURATION_BOUNDS)
    queue = Histogram("queue", "", labels, registry=registry, buckets=QUEUE_BOUNDS)
    counters = [Counter(name, "", labels, registry=registry) for name in ("calls", "device", "received", "sent")]
    values = ("anonymous", "nnhal", DIGEST.hex()[:12], "unary")

    def run() -> None:
        for _ in range(CALLS):
            started_ns = time.perf_counter_ns()
            for counter in counters:
                counter.labels(*values).inc()
            queue.labels(*values).observe(0)
            duration.labels(*values).observe((time.perf_counter_ns() - started_ns) / 1e9)

    return run


def nothing() -> Callable[[], None]:
    """Return a loop that measures the time alone, as a service without metrics does."""

    def run() -> None:
        for _ in range(CALLS):
            time.perf_counter_ns()

    return run


def main() -> None:
    """Print the cost of each way."""
    ways = {
        "at the end of the call": metered(),
        "in a buffer": buffered(),
        "prometheus_client": library(),
        "time alone": nothing(),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, run in ways.items():
            started_ns = time.perf_counter_ns()
            run()
            best[name] = min(best[name], (time.perf_counter_ns() - started_ns) / CALLS)
    for name, ns in best.items():
        print(f"{name:24} {ns:8.0f} ns")


if __name__ == "__main__":
    main()
