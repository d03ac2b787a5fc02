"""Analyses of large models on threads of calls: one at a time, until their deadline or cancellation."""

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from nnhal.errors import HalError, expired, general_failure, invalid_argument
from nnhal.types import ErrorStatus, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.preparation.launch import DeviceCall, GivenModel, LaunchOptions, PreparationLaunch
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline, now_ns
from nnhal_driver.scheduling.paced_check import call_check
from tests.driver.launches import launch_preparation

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


class Reader:
    """Reader of a small model that claims another size.

    Args:
        size: the size.
        on_read: called when the device may analyse the model.
    """

    def __init__(self, size: int, on_read: Callable[[], object] = lambda: None) -> None:
        self.size = size
        self._on_read = on_read

    def read(self, check: Callable[[], None]) -> GivenModel:
        """Return a chain of two operations."""
        self._on_read()
        return GivenModel(chain(2))


def spin(check: Callable[[], None]) -> None:
    """Work without end."""
    while True:
        check()


def test_small_models_need_no_slot(device: Device) -> None:
    answers: list[object] = []
    device.get_supported_operations(
        Reader(LARGE, lambda: answers.append(device.get_supported_operations(Reader(SMALL))[0]))
    )
    assert answers == [[True, True]]


def test_large_models_wait_for_one_another(device: Device) -> None:
    """The second gets the slot when the first has left it."""
    entered = threading.Event()
    thread = threading.Thread(target=lambda: device.get_supported_operations(Reader(LARGE, entered.set)))

    def start_second() -> None:
        thread.start()
        assert not entered.wait(0.05)

    device.get_supported_operations(Reader(LARGE, start_second))
    assert entered.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)


def test_wait_ends_at_the_deadline(device: Device) -> None:
    def wait() -> None:
        call = DeviceCall(Deadline(now_ns() + 10**7))
        with pytest.raises(HalError, match="deadline") as caught:
            device.get_supported_operations(Reader(LARGE, lambda: pytest.fail("there was a slot")), call)
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT

    device.get_supported_operations(Reader(LARGE, wait))


def test_deadline_that_had_passed_on_arrival() -> None:
    """The error does not depend on whether the analysis takes long enough to look at the deadline."""
    check = call_check(Deadline(now_ns()), Cancellation())
    with pytest.raises(HalError, match="before") as caught:
        spin(check)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_wait_ends_with_its_call(device: Device) -> None:
    def wait() -> None:
        call = DeviceCall()
        call.cancellation.cancel()
        with pytest.raises(HalError, match="cancelled by the client"):
            device.get_supported_operations(Reader(LARGE, lambda: pytest.fail("there was a slot")), call)

    device.get_supported_operations(Reader(LARGE, wait))


def test_launch_succeeds_although_the_deadline_passes_in_the_queue(device: Device) -> None:
    """PREP-03: the callback says so, and the launch raises no error."""
    outcomes: list[Outcome] = []

    def wait() -> None:
        call = DeviceCall(Deadline(now_ns() + 10**7))
        device.prepare_model(PreparationLaunch(Reader(LARGE), outcomes.append, call))

    device.get_supported_operations(Reader(LARGE, wait))
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.MISSED_DEADLINE_TRANSIENT]


def test_launch_fails_when_its_call_is_cancelled_in_the_queue(device: Device) -> None:
    outcomes: list[Outcome] = []

    def wait() -> None:
        call = DeviceCall()
        call.cancellation.cancel()
        with pytest.raises(HalError, match="cancelled by the client"):
            device.prepare_model(PreparationLaunch(Reader(LARGE), outcomes.append, call))

    device.get_supported_operations(Reader(LARGE, wait))
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.GENERAL_FAILURE]


def test_error_of_the_reader_reaches_caller_and_callback(device: Device) -> None:
    outcomes: list[Outcome] = []

    def fail() -> None:
        raise invalid_argument("unknown handle")

    with pytest.raises(HalError, match="unknown handle"):
        device.prepare_model(PreparationLaunch(Reader(SMALL, fail), outcomes.append))
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.INVALID_ARGUMENT]


def test_invalid_arguments_are_rejected_before_the_model_is_read(device: Device) -> None:
    reader = Reader(SMALL, lambda: pytest.fail("the model was read"))
    with pytest.raises(HalError, match="V-PREP-01"):
        device.prepare_model(PreparationLaunch(reader, lambda outcome: None, options=LaunchOptions(preference=3)))


class EndingCheck:
    """Check that ends the work from its `last` call on; 0: never."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def __call__(self) -> None:
        self.count += 1
        if 0 < self._last <= self.count:
            raise general_failure("the end")


@pytest.fixture
def check_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Return a function that sets the check of analyses."""
    return lambda check: monkeypatch.setattr("nnhal_driver.device.call_check", lambda *_: check)


def test_every_stage_checks_whether_it_must_end(
    device: Device, check_with: Callable[[Callable[[], None]], None]
) -> None:
    """Validation, the form of graphs, shape analysis, placement and its description check after some operations."""
    model, length = GivenModel(chain(50)), 50
    every = EndingCheck(0)
    check_with(every)
    device.get_supported_operations(model)
    assert every.count > 5 * length
    for last in range(1, every.count, length // 2):
        check = EndingCheck(last)
        check_with(check)
        with pytest.raises(HalError, match="the end"):
            device.get_supported_operations(model)
        assert check.count < last + length


def test_launch_of_a_preparation_checks(device: Device, check_with: Callable[[Callable[[], None]], None]) -> None:
    outcomes: list[object] = []
    check_with(EndingCheck(60))
    with pytest.raises(HalError, match="the end"):
        launch_preparation(device, chain(50), outcomes.append)
    assert len(outcomes) == 1


def test_cancelled_analysis_is_ended() -> None:
    """An analysis looks after some milliseconds whether its call was cancelled."""
    cancellation = Cancellation()
    check = call_check(NO_DEADLINE, cancellation)
    check()
    cancellation.cancel()
    with pytest.raises(HalError, match="cancelled by the client"):
        spin(check)


def test_the_collector_waits_for_large_models(device: Device) -> None:
    enabled: list[bool] = []
    for size in (SMALL, LARGE):
        device.get_supported_operations(Reader(size, lambda: enabled.append(gc.isenabled())))
    assert enabled == [True, False]
    assert gc.isenabled()


def test_launch_succeeds_although_the_deadline_has_passed(
    device: Device, check_with: Callable[[Callable[[], None]], None]
) -> None:
    """PREP-03: the callback says so, also if the analysis has looked at the deadline."""
    outcomes: list[Outcome] = []

    def check() -> None:
        raise expired("it has passed")

    check_with(check)
    launch_preparation(device, chain(2), outcomes.append)
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.MISSED_DEADLINE_PERSISTENT]


def test_given_model_counts_operands_and_arguments() -> None:
    assert GivenModel(chain(3)).size == 4 + 3 * 2
