"""Models that crash, hang or freeze a backend: they cost a pause, and are then kept away from it."""

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal_service.quarantine import QuarantineFile
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import has_ended, stop_running, stop_service, worker_pids
from tests.service.supervisor.hostile_service import VALUES, relu_model, start_hostile

pytestmark = pytest.mark.slow


def placed_on(device: nnhal.Device, model: nnhal.Model) -> set[str]:
    with device.prepare(model).result(60) as prepared:
        np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)
        return {partition.backend for partition in prepared.placement.partitions}


def falls_back(device: nnhal.Device) -> bool:
    """Return whether a model runs without the plug-in, whose executions hang."""
    try:
        return placed_on(device, relu_model(2)) == {"CpuRef"}
    except nnhal.HalError:
        return False


@pytest.mark.parametrize("method", ["execute", "compile"])
def test_model_that_crashes_a_backend_runs_on_the_next_one(tmp_path: Path, behavior: Path, method: str) -> None:
    service = start_hostile(tmp_path, behavior)
    with nnhal.connect(service.target) as device:
        assert placed_on(device, relu_model(2)) == {"Hostile"}
        behavior.write_text("compile crash" if method == "compile" else "")
        with (
            contextlib.suppress(nnhal.DeadObjectError),
            device.prepare(relu_model(), cache=True).result(60) as crashing,
        ):
            behavior.write_text("execute crash")
            # the client repeats the execution after the crash, on a model that is prepared again
            np.testing.assert_array_equal(crashing.execute([VALUES])[0], VALUES)
        behavior.write_text("")
        assert placed_on(device, relu_model()) == {"CpuRef"}
        assert placed_on(device, relu_model(2)) == {"Hostile"}
        assert {backend.id: backend.quarantined_models for backend in device.backends()}["Hostile"] == 1
    assert stop_service(service) == 0
    assert service.logged("how='killed by SIGSEGV'") and service.logged("suspect-model")
    assert service.logged("backend=Hostile") and service.logged("worker-stack")
    ((crash,),) = QuarantineFile(tmp_path / "state").crashes().values()
    assert (crash.backend, crash.sure) == ("Hostile", True)


def test_plugin_that_ignores_a_deadline_stops_nothing_else(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior)
    worker = service.pid
    with nnhal.connect(service.target) as device, device.prepare(relu_model(), cache=True).result(60) as prepared:
        behavior.write_text("execute hang")
        with pytest.raises(nnhal.HalError):
            prepared.execute([VALUES], deadline=0.2)
        assert wait_until(lambda: falls_back(device), 60)  # a second after the deadline
    assert service.logged("backend Hostile hangs: it has not answered in execute") and service.pid == worker
    assert stop_service(service) == 0


def test_plugin_that_ignores_the_end_of_its_client_stops_nothing_else(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior)
    worker = service.pid
    device = nnhal.connect(service.target)
    prepared = device.prepare(relu_model()).result(60)
    behavior.write_text("execute hang")
    with ThreadPoolExecutor(1) as threads:
        execution = threads.submit(prepared.execute, [VALUES])
        assert wait_until(behavior.with_suffix(".waiting").exists, 60)
        device.close()
        with pytest.raises(nnhal.HalError):
            execution.result(60)
    with nnhal.connect(service.target) as other:
        assert wait_until(lambda: falls_back(other), 60)
    assert service.pid == worker
    assert stop_service(service) == 0


def test_clients_of_another_worker_notice_nothing(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(
        tmp_path, behavior, "--workers", "2", "--device", "nnhal=Hostile,CpuRef", "--device", "safe=CpuRef"
    )
    with nnhal.connect(service.target) as device, nnhal.connect(service.target, device="safe") as other:
        prepared = other.prepare(relu_model(2)).result(60)  # without the cache: it would be lost with its worker
        with device.prepare(relu_model(), cache=True).result(60) as crashing:
            behavior.write_text("execute crash")
            with ThreadPoolExecutor(1) as threads:
                pause = threads.submit(crashing.execute, [VALUES])
                while not pause.done() or not service.logged("worker-died"):
                    np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)
                pause.result(60)
        np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)
    assert stop_service(service) == 0


def test_model_does_not_kill_a_second_worker_before_its_crash_is_recorded(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior, "--workers", "2")
    workers = worker_pids(service.process.pid)
    with (
        nnhal.connect(service.target) as device,
        device.prepare(relu_model(), cache=True).result(60) as crashing,
        ThreadPoolExecutor(1) as threads,
    ):
        behavior.write_text("execute crash")
        stop_running(service.process.pid)
        execution = threads.submit(crashing.execute, [VALUES])
        try:
            assert wait_until(lambda: service.log.read_text().count("session-opened") == 2, 60)
            wait_until(execution.done, 0.5)  # without the wait for the supervisor, the other worker has died now
            ended = [has_ended(pid) for pid in workers]
        finally:
            service.process.send_signal(signal.SIGCONT)
        np.testing.assert_array_equal(execution.result(60)[0], VALUES)
    assert sorted(ended) == [False, True]
    assert stop_service(service) == 0
    ((crash,),) = QuarantineFile(tmp_path / "state").crashes().values()
    assert crash.sure


def test_backend_that_freezes_the_interpreter_is_ended(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior, "--heartbeat-timeout-s", "1")
    with nnhal.connect(service.target) as device, device.prepare(relu_model(), cache=True).result(60) as prepared:
        behavior.write_text("execute freeze")
        np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)  # on CpuRef, after the freeze
        assert service.logged("no heartbeat for")
    assert stop_service(service) == 0


def test_refusal_after_the_second_crash_and_its_end(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior)
    quarantine = QuarantineFile(tmp_path / "state")
    with nnhal.connect(service.target) as device, device.prepare(relu_model(), cache=True).result(60) as prepared:
        behavior.write_text("execute crash")
        prepared.execute([VALUES])
        behavior.write_text("")
        ((digest, (crash,)),) = quarantine.crashes().items()
        quarantine.record(bytes.fromhex(digest), crash)
        with pytest.raises(nnhal.HalError, match="in quarantine"):
            device.prepare(relu_model()).result(60)
        quarantine.clear()
        assert placed_on(device, relu_model()) == {"Hostile"}
    assert stop_service(service) == 0
