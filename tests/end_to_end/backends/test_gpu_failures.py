"""Services whose GPU is lost, or whose workers are killed, under load: no answer is lost or wrong.

NNHAL_GPU_ROUNDS is the number of rounds. Each has one loss and five kills.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as File

import pytest

import nnhal
from nnhal_service.quarantine import QuarantineFile
from tests.concurrency import wait_until
from tests.driver.backends.gpu import faulty_driver
from tests.driver.backends.gpu.faulty_driver import FaultyDriver
from tests.driver.backends.gpu.software_gpu import require_software_gpu
from tests.end_to_end.support.load_clients import LoadClient, Path, adding_model, wait_for_answers
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("NNHAL_GPU_ROUNDS", "20"))
KILLS = 5
TIMEOUT_S = 120
RANK = 2
"""Rank of the model: the GPU does not take the one of rank 1."""
PATHS = [
    Path(False, "auto", "execute"),
    Path(True, "grpc", "execute"),
    Path(False, "auto", "burst"),
    Path(True, "grpc", "burst"),
]


@pytest.fixture
def driver(tmp_path: File) -> FaultyDriver:
    require_software_gpu()
    return FaultyDriver(tmp_path)


@pytest.fixture
def service(tmp_path: File, driver: FaultyDriver) -> Iterator[Service]:
    started = start(tmp_path, driver)
    yield started
    assert stop_service(started) == 0


def start(tmp_path: File, driver: FaultyDriver) -> Service:
    options = ("adapter=" + faulty_driver.NAME, "placement=always")
    values = [word for option in options for word in ("--backend-option", f"GpuAcc.{option}")]
    folders = {"VK_DRIVER_FILES": str(driver.manifest), "NNHAL_STATE_DIR": str(tmp_path / "state")}
    return start_service(tmp_path, "--backends", "GpuAcc,CpuAcc,CpuRef", *values, **folders)


def backends_of(service: Service) -> set[str]:
    """Return the backends of the model of the clients, for a client that prepares it now; none if none listens yet."""
    try:
        with nnhal.connect(service.target, timeout=TIMEOUT_S) as device:
            prepared = device.prepare(adding_model(RANK), cache=True).result(TIMEOUT_S)
            return {partition.backend for partition in prepared.placement.partitions}
    except nnhal.DeadObjectError:
        return set()


def starts_of(service: Service) -> int:
    return service.log.read_text().count(" worker-started ")


def lose_gpu(service: Service, driver: FaultyDriver) -> None:
    """Lose the GPU of the worker with the next work for it, and wait for its successor."""
    starts = starts_of(service)
    driver.set_fault("l")
    assert wait_until(lambda: starts_of(service) > starts, TIMEOUT_S)


def test_lost_gpu_costs_a_worker_and_its_model_goes_on_without(
    service: Service, driver: FaultyDriver, tmp_path: File
) -> None:
    assert backends_of(service) == {"GpuAcc"}
    client = LoadClient(service.target, PATHS[0], RANK)
    wait_for_answers([client])
    lose_gpu(service, driver)
    wait_for_answers([client])
    client.stop()
    assert service.logged("the GPU was lost") and service.logged("how='killed by SIGABRT'")
    ((crash,),) = QuarantineFile(tmp_path / "state").crashes().values()
    assert crash.backend == "GpuAcc"
    assert backends_of(service) == {"CpuAcc"}


def test_service_starts_without_a_gpu_that_aborts(driver: FaultyDriver, tmp_path: File) -> None:
    driver.set_fault("a")
    service = start(tmp_path, driver)
    assert backends_of(service) == {"CpuAcc"}
    with nnhal.connect(service.target) as device:
        (reason,) = (backend.reason for backend in device.backends() if backend.id == "GpuAcc")
    assert f"the trial of the GPU {faulty_driver.NAME} failed: killed by SIGABRT" in reason
    assert stop_service(service) == 0


@pytest.mark.nightly
def test_no_answer_is_lost_by_kills_and_losses(service: Service, driver: FaultyDriver, tmp_path: File) -> None:
    clients = [LoadClient(service.target, path, RANK) for path in PATHS]
    wait_for_answers(clients)
    for _ in range(ROUNDS):
        assert wait_until(lambda: backends_of(service) == {"GpuAcc"}, TIMEOUT_S)
        lose_gpu(service, driver)
        wait_for_answers(clients)
        QuarantineFile(tmp_path / "state").clear()
        for _ in range(KILLS):
            with suppress(ProcessLookupError):  # one without a client may end by itself
                os.kill(random.choice(worker_pids(service.process.pid)), signal.SIGKILL)
            wait_for_answers(clients)
    print(f"\n{sum(len(client.answers) for client in clients)} answers")
    for client in clients:
        client.stop()
