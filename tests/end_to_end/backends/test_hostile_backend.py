"""Backend that raises unusual exceptions and gives invalid answers, in a service with clients."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import nnhal
from nnhal.types import ErrorStatus
from tests.end_to_end.backends.hostile.Test_Hostile_backend import ERRORS
from tests.end_to_end.backends.hostile_plugin import FOLDER, VALUES, behave, model
from tests.end_to_end.support.service_process import Service, start_service, stop_service

RAISED = (*ERRORS, "status 0", "status 3")


@pytest.fixture(scope="module")
def behavior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that tells the backend how to behave."""
    file = tmp_path_factory.mktemp("hostile") / "behavior"
    file.write_text("")
    return file


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, behavior: Path) -> Iterator[Service]:
    started = start_service(
        tmp_path_factory.mktemp("service"),
        NNHAL_DYNAMIC_BACKENDS_PATH=str(FOLDER),
        NNHAL_BACKENDS="Hostile",
        HOSTILE_FILE=str(behavior),
        NNHAL_SANDBOX_PATHS=str(behavior.parent),
    )
    yield started
    assert stop_service(started) == 0


@pytest.fixture(params=["auto", "grpc"])
def device(service: Service, behavior: Path, request: pytest.FixtureRequest) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as connected:
        yield connected
    behave(behavior, "")


def assert_fails(call: Callable[[], object]) -> None:
    with pytest.raises(nnhal.HalError) as caught:
        call()
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE, str(caught.value)
    assert "Hostile" in caught.value.reason


@pytest.mark.parametrize("raised", [*RAISED, "None"])
@pytest.mark.parametrize("method", ["supports", "compile"])
def test_preparation_is_answered_and_the_next_one_succeeds(
    device: nnhal.Device, behavior: Path, method: str, raised: str
) -> None:
    behave(behavior, f"{method} {raised}")
    for _ in range(3):  # more often than there are threads that prepare
        assert_fails(lambda: device.prepare(model()).result(timeout=30))
    behave(behavior, "")
    assert device.prepare(model()).result(timeout=30).execute([VALUES])[0].tolist() == [1, -2]


@pytest.mark.parametrize("raised", [*RAISED, "None"])
def test_operation_is_unsupported_if_the_question_fails(device: nnhal.Device, behavior: Path, raised: str) -> None:
    behave(behavior, f"supports {raised}")
    (operation,) = device.explain(model()).operations
    assert (operation.backend, operation.refusals[0].backend) == ("", "Hostile")
    assert "asking it failed" in operation.refusals[0].reason


@pytest.mark.parametrize("raised", [*RAISED, "float64", "nothing"])
def test_execution_is_answered_on_every_path(device: nnhal.Device, behavior: Path, raised: str) -> None:
    prepared = device.prepare(model()).result(timeout=30)
    burst, reusable = prepared.burst(), prepared.reusable([VALUES])
    calls: Sequence[Callable[[], object]] = (
        lambda: prepared.execute([VALUES]),
        lambda: burst.execute([VALUES]),
        reusable.run,
        lambda: prepared.execute_fenced([VALUES]).result(timeout=30),
    )
    for call in calls:
        call()
    behave(behavior, f"execute {raised}")
    for call in calls:
        for _ in range(2):  # the second time, the encodings come from caches
            assert_fails(call)
    behave(behavior, "wait_finish SystemExit")
    for call in calls:
        assert_fails(call)
    behave(behavior, "")
    for call in calls:
        call()
    burst.close()
    reusable.close()


@pytest.mark.parametrize("answer", [*RAISED, "bad"])
def test_device_describes_itself(device: nnhal.Device, behavior: Path, answer: str) -> None:
    behave(behavior, f"extensions {answer}")
    assert device.extensions == ()
    behave(behavior, f"performance {answer}")
    assert all(entry.info.exec_time > 0 for entry in device.capabilities.operand_performance)
    behave(behavior, "")


def test_log_names_the_backend_and_the_method(device: nnhal.Device, service: Service, behavior: Path) -> None:
    behave(behavior, "compile SystemExit")
    assert_fails(lambda: device.prepare(model()).result(timeout=30))
    assert "backend Hostile failed in compile" in service.log.read_text()
