"""Reusable executions: one validated request that runs many times."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    OMITTED,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    FenceState,
    Request,
    RequestArgument,
    ReturnedPool,
    TokenValuePair,
)
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedArguments
from nnhal_driver.execution.prepared_model import PreparedModel
from tests.driver.blocking_backend import BlockingDevice, Sum, blocking_device, until

PLAIN = ExecutionConfig()
MEASURED = ExecutionConfig(measure_timing=True)


@pytest.fixture
def blocking() -> Iterator[BlockingDevice]:
    with blocking_device(cpus=2) as device:
        yield device


def with_returned_pool(work: Sum) -> Request:
    """Return the same request with its output in a ReturnedPool."""
    request = work.request
    return replace(
        request,
        outputs=(RequestArgument(False, DataLocation(2)),),
        pools=(*request.pools[:2], ReturnedPool()),
    )


def test_each_run_reads_the_current_values_of_its_memory(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    work = Sum.of(0, 1)
    execution = ReusableExecution(blocking.prepared, work.request, PLAIN)
    for value in range(5):
        work.a[:] = value
        assert execution.execute_synchronously().output_sufficient_size
        assert work.out.tolist() == [value + 1] * 2
        work.a[:] = value + 10
        fenced = execution.execute_fenced(FencedArguments())
        assert until(lambda f=fenced: f.fence.state == FenceState.SIGNALED)  # type: ignore[misc]
        assert work.out.tolist() == [value + 11] * 2


def test_request_is_validated_once_on_creation(blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    blocking.barrier.go.set()
    work = Sum.of(1)
    with pytest.raises(HalError) as caught:
        ReusableExecution(blocking.prepared, replace(work.request, inputs=work.request.inputs[:1]), PLAIN)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQMODEL-01")
    hints = ExecutionConfig(execution_hints=(TokenValuePair(1, b""), TokenValuePair(1, b"")))
    with pytest.raises(HalError) as caught:
        ReusableExecution(blocking.prepared, work.request, hints)
    assert caught.value.rule == "V-EXECARG-05"
    execution = ReusableExecution(blocking.prepared, work.request, PLAIN)
    validated: list[object] = []
    monkeypatch.setattr(PreparedModel, "validate", lambda *arguments: validated.append(arguments))
    for _ in range(3):
        execution.execute_synchronously()
    assert validated == []


def test_request_that_cannot_run_fenced_still_runs_synchronously(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    execution = ReusableExecution(blocking.prepared, with_returned_pool(Sum.of(1, 2)), PLAIN)
    for _ in range(2):
        with pytest.raises(HalError, match="returned pool") as caught:
            execution.execute_fenced(FencedArguments())
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        data = execution.execute_synchronously().returned[0]
        assert data is not None
        assert data.view(np.float32).tolist() == [3, 3]


def test_one_run_at_a_time(blocking: BlockingDevice) -> None:
    work = Sum.of(1)
    execution = ReusableExecution(blocking.prepared, work.request, PLAIN)
    thread = threading.Thread(target=execution.execute_synchronously)
    thread.start()
    assert until(lambda: blocking.barrier.started == [1])
    for run in (execution.execute_synchronously, lambda: execution.execute_fenced(FencedArguments())):
        with pytest.raises(HalError, match="in progress") as caught:
            run()
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    blocking.barrier.go.set()
    thread.join()
    assert execution.execute_synchronously().output_sufficient_size


def test_execution_is_busy_until_its_fence_ends(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    fence = Fence()
    execution = ReusableExecution(blocking.prepared, Sum.of(1).request, PLAIN)
    fenced = execution.execute_fenced(FencedArguments((fence,)))
    with pytest.raises(HalError, match="in progress"):
        execution.execute_synchronously()
    free = threading.Event()

    def use_execution(_: Fence) -> None:
        with execution._exclusive:  # a call of `execute_synchronously` would block the listener
            free.set()

    fenced.fence.add_listener(use_execution)
    fence.signal()
    assert free.wait(60)
    assert execution.execute_synchronously().output_sufficient_size


def test_execution_can_run_again_after_a_failed_run(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    execution = ReusableExecution(blocking.prepared, Sum.of(1).request, PLAIN)
    fence = Fence()
    fenced = execution.execute_fenced(FencedArguments((fence,)))
    fence.signal(error=True)
    assert fenced.fence.state == FenceState.ERROR
    for launch in (FencedArguments((fence,)), FencedArguments(call=ExecutionCall(0)), FencedArguments(duration_ns=-2)):
        with pytest.raises(HalError):
            execution.execute_fenced(launch)
    for deadline in (0, -2):
        with pytest.raises(HalError):
            execution.execute_synchronously(ExecutionCall(deadline))
    assert execution.execute_synchronously().output_sufficient_size


def test_timing_is_measured_only_if_requested(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    for config, measured in ((PLAIN, False), (MEASURED, True)):
        execution = ReusableExecution(blocking.prepared, Sum.of(1).request, config)
        timing = execution.execute_synchronously().timing
        assert (timing.time_on_device_ns != OMITTED) == measured
        assert timing.time_on_device_ns <= timing.time_in_driver_ns
