"""Analyses of large models on threads of calls: one at a time, until their deadline or cancellation."""

import gc
import threading
from collections.abc import Iterator

import pytest

from nnhal.errors import HalError, expired, general_failure
from nnhal.types import ErrorStatus, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns

SMALL, LARGE = 10_000, 10_001
TIMEOUT_S = 60


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device("test", registry.create(["CpuAcc", "CpuRef"]))
    yield device
    device.close()


def chain(length: int) -> Model:
    """Return a model of FLOOR operations one after the other."""
    operands = [Operand(T.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)]
    operands += [Operand(T.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.TEMPORARY_VARIABLE)] * (length - 1)
    operands.append(Operand(T.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    operations = tuple(Operation(Op.FLOOR, (i,), (i + 1,)) for i in range(length))
    return Model(Subgraph(tuple(operands), operations, (0,), (length,)))


def test_small_models_need_no_slot(device: Device) -> None:
    with device.admit_analysis(LARGE), device.admit_analysis(SMALL) as check:
        assert device.get_supported_operations(chain(2), check=check)[0] == [True, True]


def test_large_models_wait_for_one_another(device: Device) -> None:
    """The second gets the slot when the first has left it."""
    entered = threading.Event()

    def second() -> None:
        with device.admit_analysis(LARGE):
            entered.set()

    thread = threading.Thread(target=second)
    with device.admit_analysis(LARGE):
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)


def test_wait_ends_at_the_deadline(device: Device) -> None:
    late = device.admit_analysis(LARGE, now_ns() + 10**7)
    with device.admit_analysis(LARGE), pytest.raises(HalError, match="deadline") as caught, late:
        pytest.fail("there was a slot")
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_deadline_that_had_passed_on_arrival(device: Device) -> None:
    """The error does not depend on whether the analysis takes long enough to look at the deadline."""
    with device.admit_analysis(SMALL, now_ns()) as check, pytest.raises(HalError, match="before") as caught:
        while True:
            check()
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_wait_ends_with_its_call(device: Device) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    cancelled = device.admit_analysis(LARGE, cancellation=cancellation)
    with device.admit_analysis(LARGE), pytest.raises(HalError, match="cancelled by the client"), cancelled:
        pytest.fail("there was a slot")


class EndingCheck:
    """Check that ends the work from its `last` call on; 0: never."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def __call__(self) -> None:
        self.count += 1
        if 0 < self._last <= self.count:
            raise general_failure("the end")


def test_every_stage_checks_whether_it_must_end(device: Device) -> None:
    """Validation, the form of graphs, shape analysis, placement and its description check after some operations."""
    model, length = chain(50), 50
    every = EndingCheck(0)
    device.get_supported_operations(model, check=every)
    assert every.count > 5 * length
    for last in range(1, every.count, length // 2):
        check = EndingCheck(last)
        with pytest.raises(HalError, match="the end"):
            device.get_supported_operations(model, check=check)
        assert check.count < last + length


def test_launch_of_a_preparation_checks(device: Device) -> None:
    outcomes: list[object] = []
    with pytest.raises(HalError, match="the end"):
        device.prepare_model(chain(50), outcomes.append, check=EndingCheck(60))
    assert len(outcomes) == 1


def test_cancelled_analysis_is_ended(device: Device) -> None:
    """An analysis looks after some milliseconds whether its call was cancelled."""
    cancellation = Cancellation()
    with (
        pytest.raises(HalError, match="cancelled by the client"),
        device.admit_analysis(SMALL, -1, None, cancellation) as check,
    ):
        cancellation.cancel()
        while True:
            check()


def test_the_collector_waits_for_large_models(device: Device) -> None:
    with device.admit_analysis(SMALL):
        assert gc.isenabled()
    with device.admit_analysis(LARGE):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_launch_succeeds_although_the_deadline_has_passed(device: Device) -> None:
    """PREP-03: the callback says so, also if the analysis has looked at the deadline."""
    outcomes: list[Outcome] = []

    def check() -> None:
        raise expired("it has passed")

    device.prepare_model(chain(2), outcomes.append, check=check)
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.MISSED_DEADLINE_PERSISTENT]
