"""Runs of a client: warm-up, open and closed loops, measured calls, errors. Time is simulated."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Timing
from nnhal_tools.bench import client_process
from nnhal_tools.bench.client_process import MEASURED_EVERY, ClientRun, measure


class Clock:
    """Simulated time, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        """Return the time."""
        return self.now

    def process_time(self) -> float:
        """Return the processor time of a process that computes half of the time."""
        return self.now / 2

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client_process, "time", clock)
    return clock


def call_of(clock: Clock, seconds: float) -> Callable[[bool], Timing | None]:
    """Return a call that takes some seconds."""

    def call(is_measured: bool) -> Timing | None:
        clock.sleep(seconds)
        return Timing(int(seconds * 0.5e9), int(seconds * 0.75e9)) if is_measured else None

    return call


def run(rate: float = 0.0) -> ClientRun:
    return ClientRun(warmup_s=1.0, duration_s=8.0, rate=rate, seed=3, file="")


def test_closed_loop(clock: Clock) -> None:
    result = measure(call_of(clock, 0.125), run())
    assert np.allclose(result["latencies"], 0.125) and len(result["latencies"]) == 64  # type: ignore[arg-type]
    assert (result["elapsed_s"], result["processor_s"]) == (8.0, 4.0)
    assert np.allclose(result["measured"], [[0.125, 0.0625, 0.09375]] * 4)  # type: ignore[arg-type]
    assert MEASURED_EVERY == 16


def test_open_loop_of_a_fast_service(clock: Clock) -> None:
    latencies = measure(call_of(clock, 1e-6), run(rate=100.0))["latencies"]
    assert len(latencies) == pytest.approx(800, rel=0.15)  # type: ignore[arg-type]
    assert np.allclose(np.median(latencies), 1e-6)  # type: ignore[call-overload]


def test_calls_of_an_overloaded_service_wait(clock: Clock) -> None:
    """A latency counts from the arrival, though the client makes the call later."""
    latencies = np.asarray(measure(call_of(clock, 0.1), run(rate=20.0))["latencies"])
    assert latencies[-1] > 3.0 and latencies[-1] > latencies[0]


def test_errors_are_counted_by_reason(clock: Clock) -> None:
    def call(is_measured: bool) -> Timing | None:
        clock.sleep(0.5)
        raise HalError(ErrorStatus.GENERAL_FAILURE, "no")

    result = measure(call, run())
    assert json.loads(str(result["errors"])) == {"no": 18} and len(result["latencies"]) == 0  # type: ignore[arg-type]
