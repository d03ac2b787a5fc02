"""Backend that hangs while models are prepared, in a service with other clients."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nnhal
from tests.concurrency import TIMEOUT_S, wait_until
from tests.end_to_end.backends.hostile_plugin import COMPUTED, COPIED, FOLDER, behave, model, run
from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="module")
def behavior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that tells the backend how to behave."""
    file = tmp_path_factory.mktemp("hanging") / "behavior"
    file.write_text("")
    return file


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, behavior: Path) -> Iterator[Service]:
    started = start_service(
        tmp_path_factory.mktemp("service"),
        NNHAL_DYNAMIC_BACKENDS_PATH=str(FOLDER),
        NNHAL_BACKENDS="Hostile,CpuRef",
        NNHAL_DEVICES='["first", "second=CpuRef"]',
        NNHAL_BACKEND_TIMEOUT_S="1",
        HOSTILE_FILE=str(behavior),
        NNHAL_SANDBOX_PATHS=str(behavior.parent),
    )
    yield started
    assert stop_service(started) == 0


@pytest.mark.parametrize(
    "method", ["before_load_network", "supports", "optimize", "before_load", "compile", "after_load"]
)
def test_clients_fall_back_and_others_notice_nothing(service: Service, behavior: Path, method: str) -> None:
    waiting, worker = behavior.with_suffix(".waiting"), service.pid
    waiting.unlink(missing_ok=True)
    with (
        nnhal.connect(service.target) as device,
        nnhal.connect(service.target, device="second") as other,
        ThreadPoolExecutor(4) as pool,
    ):
        assert wait_until(lambda: run(device) == COPIED, TIMEOUT_S)
        behave(behavior, f"{method} wait")
        clients = [pool.submit(run, device) for _ in range(4)]  # more than there are slots
        assert wait_until(waiting.exists, TIMEOUT_S)
        for _ in range(5):
            assert run(other) == COMPUTED
        results = [client.result(TIMEOUT_S) for client in clients]
        assert method == "before_load_network" or COMPUTED in results
        assert run(device) == COMPUTED  # it does not wait for a second hang: the first one lasts
        (operation,) = device.explain(model()).operations
        assert f"it has not answered in {method}" in operation.refusals[0].reason
        behave(behavior, "")
        assert wait_until(lambda: run(device) == COPIED, TIMEOUT_S)
    assert service.pid == worker
    assert service.logged(f"backend Hostile hangs: it has not answered in {method} for ")
