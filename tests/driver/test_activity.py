"""Records of the work in progress, which another process can read."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from nnhal.types import OMITTED, ErrorStatus, OperandType, OperationType, PrepareModelConfig
from nnhal_driver.activity import CAPACITY, TABLE_BYTES, ActivityTable, Stage, note_backend, read_activities
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.quarantine import Verdict
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import int32, model_of, tensor

DIGEST = b"d" * 32
_X = tensor(OperandType.TENSOR_FLOAT32, (2,))
ADD = model_of(OperationType.ADD, [(_X, np.ones(2)), (_X, np.ones(2)), int32(0)], [_X], constants=False)


@pytest.fixture
def memory() -> memoryview:
    """Return the memory of a table."""
    return memoryview(bytearray(TABLE_BYTES))


def test_record(memory: memoryview) -> None:
    table = ActivityTable(memory)
    table.add_backends(["CpuAcc", "CpuRef"])
    before = now_ns()
    number = table.begin(Stage.EXECUTING, DIGEST, 5, expected_ns=7)
    note_backend("CpuRef")
    (activity,) = read_activities(memory, table.backends)
    assert (activity.stage, activity.digest, activity.backend) == (Stage.EXECUTING, DIGEST, "CpuRef")
    assert (activity.deadline_ns, activity.cancelled_ns, activity.expected_ns) == (5, 0, 7)
    assert before <= activity.started_ns <= now_ns() and activity.thread == threading.get_ident()
    assert table.count == 1
    table.end(number)
    assert read_activities(memory, table.backends) == [] and table.count == 0
    note_backend("CpuAcc")  # work that has no record
    assert read_activities(memory, table.backends) == []


def test_unknown_digest_and_backend(memory: memoryview) -> None:
    table = ActivityTable(memory)
    table.begin(Stage.PREPARING, b"")
    note_backend("Npu")
    (activity,) = read_activities(memory, [])
    assert (activity.digest, activity.backend) == (b"", "")


def test_threads_have_records_of_their_own(memory: memoryview) -> None:
    table = ActivityTable(memory)
    table.add_backends(["A", "B"])
    table.begin(Stage.EXECUTING, b"1")

    def work() -> None:
        table.begin(Stage.EXECUTING, b"2")
        note_backend("B")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    note_backend("A")
    assert {(each.digest[:1], each.backend) for each in read_activities(memory, table.backends)} == {
        (b"1", "A"),
        (b"2", "B"),
    }


def test_cancellation_is_noted_once(memory: memoryview) -> None:
    table, cancellation = ActivityTable(memory), Cancellation()
    table.begin(Stage.EXECUTING, DIGEST, cancellation=cancellation)
    table.publish()
    assert read_activities(memory, [])[0].cancelled_ns == 0
    cancellation.cancel()
    table.publish()
    (first,) = read_activities(memory, [])
    assert first.cancelled_ns > 0
    table.publish()
    assert read_activities(memory, []) == [first]


def test_record_of_cancelled_work_is_clean_for_the_next(memory: memoryview) -> None:
    table, cancellation = ActivityTable(memory), Cancellation()
    cancellation.cancel()
    number = table.begin(Stage.EXECUTING, DIGEST, cancellation=cancellation)
    table.publish()
    table.end(number)
    table.begin(Stage.EXECUTING, DIGEST)
    table.publish()
    assert read_activities(memory, [])[0].cancelled_ns == 0


def test_work_for_which_there_is_no_record(memory: memoryview) -> None:
    table = ActivityTable(memory)
    numbers = [table.begin(Stage.EXECUTING, DIGEST) for _ in range(CAPACITY)]
    assert table.begin(Stage.EXECUTING, DIGEST) is None
    table.end(None)
    for number in numbers:
        table.end(number)
    assert table.begin(Stage.EXECUTING, DIGEST) is not None


# ---- The device -----------------------------------------------------------------------------------------


class FakeQuarantine:
    """Quarantine with one verdict for the model with the digest."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def verdict(self, digest: bytes) -> Verdict:
        assert digest == DIGEST
        return self._verdict

    def count(self, backend: str) -> int:
        return int(backend in self._verdict.excluded)


def prepare(device: Device, deadline_ns: int = OMITTED) -> Outcome:
    outcomes: list[Outcome] = []
    done = threading.Event()

    def notify(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    launch_preparation(device, ADD, notify, PrepareModelConfig(deadline_ns=deadline_ns), digest=DIGEST)
    assert done.wait(60)
    return outcomes[0]


@pytest.fixture
def device_with(request: pytest.FixtureRequest) -> Callable[[Verdict], Device]:
    """Return a function that creates a device with a quarantine."""

    def create(verdict: Verdict) -> Device:
        device = Device(
            "test", registry.create(["CpuAcc", "CpuRef"]), host=DeviceHost(quarantine=FakeQuarantine(verdict))
        )
        request.addfinalizer(device.close)
        return device

    return create


def test_excluded_backend_is_not_used(device_with: Callable[[Verdict], Device]) -> None:
    outcome = prepare(device_with(Verdict(("CpuAcc",), reason="it crashed")))
    assert outcome.status == ErrorStatus.NONE
    assert [partition.backend for partition in outcome.placement.partitions] == ["CpuRef"]
    (warning,) = outcome.warnings
    assert warning.code == "backend-quarantined" and "CpuAcc" in warning.text and "it crashed" in warning.text


def test_refused_model(device_with: Callable[[Verdict], Device]) -> None:
    outcome = prepare(device_with(Verdict(refusal="the model is in quarantine")))
    assert (outcome.status, outcome.reason) == (ErrorStatus.GENERAL_FAILURE, "the model is in quarantine")


def test_no_backend_is_left(device_with: Callable[[Verdict], Device]) -> None:
    outcome = prepare(device_with(Verdict(("CpuAcc", "CpuRef"), reason="they crashed")))
    assert (outcome.status, outcome.reason) == (ErrorStatus.GENERAL_FAILURE, "no backend is left: they crashed")


def test_device_records_its_work(memory: memoryview) -> None:
    seen = []

    class Watching(type(registry.create(["CpuRef"])[0])):  # type: ignore[misc]
        """CpuRef that looks at the table while it compiles."""

        def compile(self, subgraph: object, options: object) -> object:
            seen.extend(read_activities(memory, table.backends))
            return super().compile(subgraph, options)

    table = ActivityTable(memory)
    device = Device("test", [Watching()], host=DeviceHost(activities=table))
    deadline_ns = now_ns() + 10**11
    outcome = prepare(device, deadline_ns)
    assert outcome.prepared_model is not None and outcome.prepared_model.estimated_ns > 0
    (activity,) = seen
    assert (activity.stage, activity.digest, activity.backend) == (Stage.PREPARING, DIGEST, "CpuRef")
    assert activity.deadline_ns == deadline_ns != OMITTED
    device.close()
    assert read_activities(memory, table.backends) == []
