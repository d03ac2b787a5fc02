"""Deferred executions: a device works on them on its own, and they hold no slot meanwhile."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import HalError, general_failure
from nnhal.types import (
    AnyArray,
    DataLocation,
    ErrorStatus,
    FenceState,
    Memory,
    Model,
    Operand,
    Request,
    RequestArgument,
    SpanKind,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Output, Run, SubgraphView
from nnhal_driver.backends.memory import MemoryManager, Storage
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from tests.concurrency import TIMEOUT_S, wait_until
from tests.driver.asynchronous_device import Asynchronous, Deferring, Queue, device_failure
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.fake_backend import Fake, parts
from tests.driver.one_operation import execute, execute_profiled, prepare

X = np.array([1, -2], np.float32)
FLOATS = Operand(T.TENSOR_FLOAT32, (2,))


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue()
    yield queue
    queue.close()


@contextmanager
def device_with_one_slot(*backends: Backend) -> Iterator[Device]:
    with patch("nnhal_driver.device.available_cpus", lambda: 1):
        device = Device("test", backends, DeviceOptions(merge_partitions=False))
    yield device
    device.close()


def chain(*types: int, outputs: Sequence[int] = (-1,)) -> Model:
    """Return a chain of unary operations; some of their results are outputs."""
    b = ModelBuilder()
    values = [b.input(T.TENSOR_FLOAT32, FLOATS.dimensions)]
    for type_ in types:
        values.append(b.add(type_, values[-1], output=FLOATS))
    for number in outputs:
        b.output(values[number])
    return b.build()


def request(source: AnyArray, output: AnyArray) -> Request:
    """Return a request over memory of the test's own."""
    first, second = (RequestArgument(False, DataLocation(i, 0, 8)) for i in range(2))
    return Request((first,), (second,), (Memory.of(source), Memory.of(output, writable=True)))


def acquire(semaphore: threading.Semaphore, count: int = 1) -> None:
    for _ in range(count):
        assert semaphore.acquire(timeout=TIMEOUT_S)


def test_waiting_executions_hold_no_slot(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU]), CpuRef()) as device, ThreadPoolExecutor(4) as pool:
        deferred, direct = prepare(chain(Op.RELU), device), prepare(chain(Op.ABS), device)
        queue.gate.clear()
        running = [pool.submit(execute, deferred, [X + np.float32(number)]) for number in range(3)]
        try:
            acquire(queue.submitted, 3)  # of the same model, with one slot
            acquire(queue.waiting, 3)
            other = pool.submit(lambda: execute(direct, [X])[1][0])
            np.testing.assert_array_equal(other.result(TIMEOUT_S), np.abs(X))
            assert not any(future.done() for future in running)
        finally:
            queue.gate.set()
        for number, future in enumerate(running):
            np.testing.assert_array_equal(future.result(TIMEOUT_S)[1][0], X + np.float32(number + 1))
        assert device._scheduler.admission._free == 1


def test_waiting_fenced_executions_hold_no_slot(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU])) as device:
        deferred = prepare(chain(Op.RELU), device).prepared_model
        assert deferred is not None
        queue.gate.clear()
        outputs = [np.zeros(2, np.float32) for _ in range(3)]
        try:
            executions = [deferred.execute_fenced(request(X + np.float32(n), out)) for n, out in enumerate(outputs)]
            acquire(queue.waiting, 3)
            assert all(execution.fence.state == FenceState.ACTIVE for execution in executions)
        finally:
            queue.gate.set()
        assert wait_until(lambda: all(execution.fence.state == FenceState.SIGNALED for execution in executions))
        for number, output in enumerate(outputs):
            np.testing.assert_array_equal(output, X + np.float32(number + 1))


def test_other_backends_wait_for_the_values_that_they_read(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU]), CpuRef()) as device:
        outcome = prepare(chain(Op.RELU, Op.ABS, Op.RELU, Op.RELU, outputs=(1, 4)), device)
        assert parts(outcome.placement) == [("Asynchronous", (0,)), ("CpuRef", (1,)), ("Asynchronous", (2, 3))]
        first, last = execute(outcome, [X])[1]
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(last, np.abs(X + 1) + 2)


def test_loops_wait_in_each_turn(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.ADD]), CpuRef()) as device:
        (result,) = execute(prepare(loop(less_than(), counts()), device), [f(1), f(5)])[1]
    assert result.tolist() == [5]


def test_failures_of_the_device_fail_the_execution(queue: Queue) -> None:
    backend = Asynchronous(queue, [Op.RELU])
    with device_with_one_slot(backend, CpuRef()) as device:
        outcome = prepare(chain(Op.RELU), device)
        backend.failure = device_failure()
        with pytest.raises(HalError, match="the device failed"):
            execute(outcome, [X])
        backend.failure = None
        np.testing.assert_array_equal(execute(outcome, [X])[1][0], X + 1)


class _Forgetful(Deferring):
    """Its wait ends without an output."""

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        run.defer(lambda: None)


def test_missing_outputs_are_noticed_after_the_wait(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU], _Forgetful)) as device:
        outcome = prepare(chain(Op.RELU), device)
        with pytest.raises(HalError, match="was not written"):
            execute(outcome, [X])


class _Failing(CompiledSubgraph):
    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        raise general_failure("no luck")


class Failing(Fake):
    """Fails to execute ABS."""

    def __init__(self) -> None:
        super().__init__("Failing", takes=[Op.ABS])

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _Failing()


def test_failed_executions_wait_for_work_in_flight(queue: Queue) -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.RELU, x, output=FLOATS))
    b.output(b.add(Op.ABS, x, output=FLOATS))
    with device_with_one_slot(Asynchronous(queue, [Op.RELU]), Failing()) as device, ThreadPoolExecutor(1) as pool:
        outcome = prepare(b.build(), device)
        queue.gate.clear()
        failing = pool.submit(lambda: execute(outcome, [X]))
        try:
            acquire(queue.waiting)
            assert not failing.done()
        finally:
            queue.gate.set()
        with pytest.raises(HalError, match="no luck") as caught:
            failing.result(TIMEOUT_S)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE


class _FailsAfterDeferring(Deferring):
    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        super().execute(inputs, outputs, run)
        raise general_failure("too late to stop")


def test_wait_is_called_even_if_execute_fails_after_it(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU], _FailsAfterDeferring)) as device:
        with pytest.raises(HalError, match="too late to stop"):
            execute(prepare(chain(Op.RELU), device), [X])
        acquire(queue.waiting)


class _WithHooks(Deferring):
    """Has planned memory, and records the calls of its hooks."""

    def __init__(self, backend: Asynchronous, subgraph: SubgraphView) -> None:
        super().__init__(backend, subgraph)
        self.memory = MemoryManager()
        self.memory.get(100, Storage.DYNAMIC)
        self.calls: list[str] = []
        backend.compiled = self  # type: ignore[attr-defined]

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self.calls.append("execute")
        super().execute(inputs, outputs, _Recorded(run, self.calls))

    def execute_begin(self) -> None:
        self.calls.append("execute_begin")

    def wait_finish(self) -> None:
        self.calls.append("wait_finish")

    def execute_end(self) -> None:
        assert self.memory is not None and self.memory.is_held
        self.calls.append("execute_end")


class _Recorded:
    """Run whose waits are recorded."""

    profile = None

    def __init__(self, run: Run, calls: list[str]) -> None:
        self.run, self.calls = run, calls

    def check(self) -> None:
        self.run.check()

    def defer(self, wait: Callable[[], None]) -> None:
        def recorded() -> None:
            wait()
            self.calls.append("wait")

        self.run.defer(recorded)


def test_hooks_of_the_end_follow_the_wait(queue: Queue) -> None:
    backend = Asynchronous(queue, [Op.RELU], _WithHooks)
    with device_with_one_slot(backend) as device, ThreadPoolExecutor(2) as pool:
        outcome = prepare(chain(Op.RELU), device)
        queue.gate.clear()
        running = [pool.submit(lambda: execute(outcome, [X])[1][0]) for _ in range(2)]
        try:
            acquire(queue.waiting)
            assert backend.compiled.calls == ["execute_begin", "execute"]  # type: ignore[attr-defined]
        finally:
            queue.gate.set()
        for future in running:
            np.testing.assert_array_equal(future.result(TIMEOUT_S), X + 1)
    # planned memory is used by one execution at a time
    assert backend.compiled.calls == ["execute_begin", "execute", "wait", "execute_end"] * 2  # type: ignore[attr-defined]


def test_profiled_executions_wait_for_each_partition(queue: Queue) -> None:
    with device_with_one_slot(Asynchronous(queue, [Op.RELU]), CpuRef()) as device:
        spans = execute_profiled(prepare(chain(Op.RELU, Op.ABS), device), [X]).spans
    partitions = [span for span in spans if span.kind == SpanKind.PARTITION]
    assert [span.backend for span in partitions] == ["Asynchronous", "CpuRef"]
    assert partitions[0].start_ns + partitions[0].duration_ns <= partitions[1].start_ns
