"""Executions that are frozen and run many times."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from driver.deadline import now_ns
from driver.fence import Fence
from driver.fenced import FencedLaunch
from driver.prepared_model import PreparedModel
from driver.reusable import ReusableExecution
from nnhal.enums import FenceState
from nnhal.errors import HalError
from nnhal.types import (
    OMITTED,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    Request,
    RequestArgument,
    ReturnedPool,
    TokenValuePair,
)
from tests.driver.held import Bench, Sum, bench, until

PLAIN = ExecutionConfig()
MEASURED = ExecutionConfig(measure_timing=True)


@pytest.fixture
def held() -> Iterator[Bench]:
    with bench(width=2) as made:
        yield made


def returned(work: Sum) -> Request:
    """The same request with its output in a ReturnedPool."""
    request = work.request
    return replace(
        request,
        outputs=(RequestArgument(False, DataLocation(2)),),
        pools=(*request.pools[:2], ReturnedPool()),
    )


def test_every_run_sees_the_values_that_are_in_memory_then(held: Bench) -> None:
    held.hold.go.set()
    work = Sum.of(0, 1)
    execution = ReusableExecution(held.prepared, work.request, PLAIN)
    for value in range(5):
        work.a[:] = value
        assert execution.execute_synchronously().output_sufficient_size
        assert work.out.tolist() == [value + 1] * 2
        work.a[:] = value + 10
        fenced = execution.execute_fenced(FencedLaunch())
        assert until(lambda f=fenced: f.fence.state == FenceState.SIGNALED)  # type: ignore[misc]
        assert work.out.tolist() == [value + 11] * 2


def test_the_request_is_judged_once_when_it_is_made(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held.hold.go.set()
    work = Sum.of(1)
    with pytest.raises(HalError) as caught:
        ReusableExecution(held.prepared, replace(work.request, inputs=work.request.inputs[:1]), PLAIN)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQMODEL-01")
    hints = ExecutionConfig(execution_hints=(TokenValuePair(1, b""), TokenValuePair(1, b"")))
    with pytest.raises(HalError) as caught:
        ReusableExecution(held.prepared, work.request, hints)
    assert caught.value.rule == "V-EXECARG-05"
    execution = ReusableExecution(held.prepared, work.request, PLAIN)
    judged: list[object] = []
    monkeypatch.setattr(PreparedModel, "validate", lambda *arguments: judged.append(arguments))
    for _ in range(3):
        execution.execute_synchronously()
    assert judged == []


def test_what_fenced_runs_may_not_have_is_refused_by_them_alone(held: Bench) -> None:
    held.hold.go.set()
    execution = ReusableExecution(held.prepared, returned(Sum.of(1, 2)), PLAIN)
    for _ in range(2):
        with pytest.raises(HalError, match="returned pool") as caught:
            execution.execute_fenced(FencedLaunch())
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        data = execution.execute_synchronously().returned[0]
        assert data is not None
        assert data.view(np.float32).tolist() == [3, 3]


def test_one_run_at_a_time(held: Bench) -> None:
    work = Sum.of(1)
    execution = ReusableExecution(held.prepared, work.request, PLAIN)
    thread = threading.Thread(target=execution.execute_synchronously)
    thread.start()
    assert until(lambda: held.hold.started == [1])
    soon = now_ns() + 2 * 10**9
    for run in (lambda: execution.execute_synchronously(soon), lambda: execution.execute_fenced(FencedLaunch())):
        with pytest.raises(HalError, match="in progress") as caught:
            run()
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    held.hold.go.set()
    thread.join()
    assert execution.execute_synchronously().output_sufficient_size


def test_it_is_busy_until_the_fence_ends(held: Bench) -> None:
    held.hold.go.set()
    fence = Fence()
    execution = ReusableExecution(held.prepared, Sum.of(1).request, PLAIN)
    fenced = execution.execute_fenced(FencedLaunch((fence,)))
    with pytest.raises(HalError, match="in progress"):
        execution.execute_synchronously()
    free: list[bool] = []
    fenced.fence.when_over(lambda _: free.append(not execution._busy.locked()))
    fence.end()
    assert until(lambda: free == [True])
    assert execution.execute_synchronously().output_sufficient_size


def test_a_run_that_fails_does_not_spoil_it(held: Bench) -> None:
    held.hold.go.set()
    execution = ReusableExecution(held.prepared, Sum.of(1).request, PLAIN)
    fence = Fence()
    fenced = execution.execute_fenced(FencedLaunch((fence,)))
    fence.end(error=True)
    assert fenced.fence.state == FenceState.ERROR
    for launch in (FencedLaunch((fence,)), FencedLaunch(deadline_ns=0), FencedLaunch(duration_ns=-2)):
        with pytest.raises(HalError):
            execution.execute_fenced(launch)
    for deadline in (0, -2):
        with pytest.raises(HalError):
            execution.execute_synchronously(deadline)
    assert execution.execute_synchronously().output_sufficient_size


def test_timing_is_measured_where_it_was_asked_for(held: Bench) -> None:
    held.hold.go.set()
    for config, measured in ((PLAIN, False), (MEASURED, True)):
        execution = ReusableExecution(held.prepared, Sum.of(1).request, config)
        timing = execution.execute_synchronously().timing
        assert (timing.time_on_device_ns != OMITTED) == measured
        assert timing.time_on_device_ns <= timing.time_in_driver_ns
