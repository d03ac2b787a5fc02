"""Batches: executions that join, what keeps them apart, and what happens to the others when one fails."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from nnhal.errors import MISSED_DEADLINE, HalError, general_failure
from nnhal.types import (
    AnyArray,
    DataLocation,
    ExecutionConfig,
    Memory,
    Priority,
    Request,
    RequestArgument,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.execution.batching import BatchedModel, Batcher
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.share import Share, ShareOwner
from tests.concurrency import run_concurrently
from tests.driver.blocking_backend import BlockingDevice, blocking_device, until
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import int32, model_of, tensor

LONG_S = 1000.0
"""A delay that no test waits for."""


@pytest.fixture
def blocking() -> Iterator[BlockingDevice]:
    with blocking_device() as device:
        yield device


def doubling(blocking: BlockingDevice, items: int) -> PreparedModel:
    """Return a model that doubles items of two values each."""
    operand = tensor(T.TENSOR_FLOAT32, (items, 2))
    model = model_of(Op.ADD, [(operand, 0), (operand, 0), int32(0)], [operand], constants=False)
    prepared: list[PreparedModel] = []

    def keep(outcome: Outcome) -> None:
        assert outcome.prepared_model is not None
        prepared.append(outcome.prepared_model)

    launch_preparation(blocking.device, model, keep)
    assert until(lambda: bool(prepared))
    return prepared[0]


def batched(blocking: BlockingDevice, *sizes: int, delay_s: float = LONG_S) -> BatchedModel:
    """Return the model for one item, which joins batches."""
    models = {size: doubling(blocking, size) for size in sizes}
    return BatchedModel.of(doubling(blocking, 1), ((1, 2), (1, 2)), Batcher(models, delay_s))


@dataclass
class Work:
    """An execution on a thread of its own. It adds a number to itself."""

    model: PreparedModel
    number: float
    call: ExecutionCall = field(default_factory=ExecutionCall)
    config: ExecutionConfig = field(default_factory=ExecutionConfig)
    output: AnyArray = field(default_factory=lambda: np.zeros((1, 2), np.float32))
    error: HalError | None = None

    def run(self) -> None:
        value = np.full((1, 2), self.number, np.float32)
        pools = (Memory.of(value), Memory.of(value), Memory.of(self.output, writable=True))
        first, second, out = (RequestArgument(False, DataLocation(i, 0, 8)) for i in range(3))
        request = Request((first, second), (out,), pools)
        try:
            self.result = self.model.execute_synchronously(request, self.config, self.call)
        except HalError as error:
            self.error = error

    def start(self) -> "Work":
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def is_right(self) -> bool:
        self.thread.join(60)
        return self.error is None and self.output.tolist() == [[2 * self.number] * 2]


def waiting(model: BatchedModel, count: int) -> bool:
    """Wait until a number of executions wait for others."""
    return until(lambda: sum(map(len, model.batcher._groups.values())) == count)


def test_full_batch_runs_as_one(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    model = batched(blocking, 2, 4)
    config = ExecutionConfig(measure_timing=True)
    works = [Work(model, number, config=config).start() for number in range(4)]
    assert all(work.is_right() for work in works)
    assert (model.batcher.batches, model.batcher.joined, len(blocking.barrier.started)) == (1, 4, 1)
    assert all(work.call.device_ns > 0 and work.result.timing.time_on_device_ns > 0 for work in works)


def test_executions_join_while_the_leader_waits_for_a_slot(blocking: BlockingDevice) -> None:
    model = batched(blocking, 2, 4, delay_s=0)
    first = Work(model, 0).start()
    assert until(lambda: blocking.barrier.started == [0])
    works = [Work(model, number).start() for number in range(1, 8)]
    assert waiting(model, 7)
    blocking.barrier.go.set()
    assert all(work.is_right() for work in (first, *works))
    assert (model.batcher.batches, model.batcher.joined) == (2, 6)  # 4, 2 and 1


def test_delay_ends_the_wait(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    assert Work(batched(blocking, 2, delay_s=0.001), 1).start().is_right()


def test_clients_and_priorities_do_not_join(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    model = batched(blocking, 2)
    others = [replace(model, subject=b"other"), replace(model, priority=Priority.HIGH)]
    works = [Work(each, number).start() for number, each in enumerate([model, *others])]
    assert waiting(model, 3)
    works += [Work(each, 3 + number).start() for number, each in enumerate([model, *others])]
    assert all(work.is_right() for work in works)
    assert (model.batcher.batches, model.batcher.joined) == (3, 6)


@pytest.mark.parametrize(
    ("call", "config"),
    [
        (lambda: ExecutionCall(now_ns() + 10**10), ExecutionConfig()),  # the delay is longer
        (ExecutionCall, ExecutionConfig(profile=True)),
        (ExecutionCall, ExecutionConfig(loop_timeout_duration_ns=10**10)),
    ],
)
def test_what_runs_alone(blocking: BlockingDevice, call: Callable[[], ExecutionCall], config: ExecutionConfig) -> None:
    blocking.barrier.go.set()
    assert Work(batched(blocking, 2), 1, call(), config).start().is_right()


def test_inputs_of_another_shape_run_alone(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    model = replace(batched(blocking, 2), item_shapes=((1, 3), (1, 3)))
    assert Work(model, 1).start().is_right()


def fail_batches(blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let executions of several items fail."""

    def check(inputs: list[AnyArray], run: object) -> None:
        if inputs[0].shape[0] > 1:
            raise general_failure("the batch failed")

    monkeypatch.setattr(blocking.barrier, "wait", check)


def test_failed_batch_runs_each_alone(blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_batches(blocking, monkeypatch)
    model = batched(blocking, 4)
    works = [Work(model, number).start() for number in range(4)]
    assert all(work.is_right() for work in works)


def test_end_of_one_is_not_that_of_others(blocking: BlockingDevice) -> None:
    """Leader and follower are cancelled, and the deadline of another passes, while a batch waits for its slot."""
    model = batched(blocking, 2, 4, delay_s=0)
    first = Work(model, 0).start()
    assert until(lambda: blocking.barrier.started == [0])
    leader = Work(model, 1).start()
    assert until(lambda: blocking.admission.waiting == 1)
    follower, late = Work(model, 2).start(), Work(model, 3, ExecutionCall(now_ns() + 5 * 10**7)).start()
    others = [Work(model, number).start() for number in (4, 5)]
    follower.call.cancellation.cancel()
    late.thread.join(60)
    follower.thread.join(60)
    assert waiting(model, 3)
    leader.call.cancellation.cancel()
    leader.thread.join(60)
    assert waiting(model, 2)
    blocking.barrier.go.set()
    assert all(work.is_right() for work in (first, *others))
    assert [str(work.error) for work in (leader, follower)] == ["GENERAL_FAILURE: cancelled by the client"] * 2
    assert late.error is not None
    assert late.error.status in MISSED_DEADLINE
    assert model.batcher._groups == {}


def test_waiting_executions_count_against_quotas(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    model = batched(blocking, 3)
    owner = ShareOwner("session", Share("client", executions=2))
    works = []
    for number in range(3):
        work = Work(model, number)
        work.call.owner = owner
        works.append(work.start())
        assert waiting(model, min(number + 1, 2))
    works[2].thread.join(60)
    assert works[2].error is not None
    assert "its quota is 2" in works[2].error.reason
    assert Work(model, 9).start().is_right()
    assert all(work.is_right() for work in works[:2])


@pytest.mark.parametrize("fails", [False, True])
def test_random_work(blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Each execution has its own outputs or its own error, whatever the others do."""
    blocking.barrier.go.set()
    if fails:
        fail_batches(blocking, monkeypatch)
    model = batched(blocking, 2, 4, 5, delay_s=0.001)

    def work(thread: int) -> None:
        choose = random.Random(thread)
        used = replace(model, priority=choose.choice((Priority.LOW, Priority.HIGH)))
        for number in range(40):
            cancellation = Cancellation()
            deadline = choose.choice((-1, now_ns() + choose.randrange(10**7)))
            one = Work(used, 100 * thread + number, ExecutionCall(deadline, cancellation))
            one.start()
            if choose.random() < 0.2:
                cancellation.cancel()
            assert one.is_right() or one.error is not None
            if one.error is not None:
                assert cancellation.cancelled or deadline != -1, one.error

    run_concurrently(8, work)
    assert model.batcher._groups == {}
    assert blocking.admission.running == 0
