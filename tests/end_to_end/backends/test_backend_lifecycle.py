"""End of native backends with a service: each object is destroyed on every orderly stop, and if the start fails."""

import signal
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import BackendState, Model, Operand, OperandType, OperationType
from tests.driver.backends.native.building import lifecycle
from tests.end_to_end.support.service_process import start_service, stop_service

X = np.ones((300, 400), np.float32)


def _model() -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, X.shape)
    b.output(b.add(OperationType.NEG, x, output=Operand(OperandType.TENSOR_FLOAT32, X.shape)))
    return b.build()


def _events(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "events").read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_destroys_the_objects_while_clients_are_connected(number: signal.Signals, tmp_path: Path) -> None:
    lifecycle(tmp_path)
    environment = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NNHAL_TEST_LOG": str(tmp_path / "events")}
    service = start_service(tmp_path, "--stop-grace-s", "1", **environment)
    try:
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(_model()).result()
            with prepared.burst() as burst:
                assert burst.execute([X])[0].max() == -1
                assert prepared.execute([X])[0].max() == -1
                probed = ["create", "destroy"]
                used = ["create", "before_load_network", "compile", "after_load_network", "execute", "execute"]
                assert _events(tmp_path) == [*probed, *used]
                service.process.send_signal(number)
                assert service.process.wait(timeout=60) == 0
    finally:
        stop_service(service)
    unloaded = ["before_unload_network", "release", "after_unload_network"]
    assert _events(tmp_path)[len(probed) + len(used) :] == [*unloaded, "destroy"]


@pytest.mark.slow
def test_preloaded_models_are_unloaded_before_the_end(tmp_path: Path) -> None:
    lifecycle(tmp_path)
    events = tmp_path / "events"
    environment = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NNHAL_TEST_LOG": str(events)}
    service = start_service(tmp_path, **environment)
    with nnhal.connect(service.target) as device:
        device.prepare(_model(), cache=True).result()
    stop_service(service)
    events.unlink()
    service = start_service(tmp_path, "--warm", "1", **environment)
    try:
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(_model(), cache=True).result()
            assert prepared.execute([X])[0].max() == -1
    finally:
        assert stop_service(service) == 0
    created = ["create", "destroy", "create", "before_load_network", "compile", "after_load_network", "execute"]
    assert _events(tmp_path) == [*created, "before_unload_network", "release", "after_unload_network", "destroy"]


def test_failed_start_destroys_the_objects(tmp_path: Path) -> None:
    lifecycle(tmp_path)
    environment = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NNHAL_TEST_LOG": str(tmp_path / "events")}
    with pytest.raises(RuntimeError, match="the service did not start"):
        start_service(tmp_path, "--device", "one", "--device", "two", "--no-extension", "none.such", **environment)
    events = _events(tmp_path)
    assert events[:4] == ["create", "destroy", "create", "create"]
    assert events[4:] == ["destroy", "destroy"]


def test_allocator_of_the_operator_is_reported_for_each_backend(tmp_path: Path) -> None:
    lifecycle(tmp_path)
    service = start_service(tmp_path, "--allocator", "huge-pages", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        with nnhal.connect(service.target) as device:
            assert device.prepare(_model()).result().execute([X])[0].max() == -1
            reports = {report.id: report for report in device.backends() if report.state == BackendState.READY}
        assert reports["Lifecycle"].capabilities == {"CustomAllocator": True}
        assert reports["Lifecycle"].reason == ""
        assert reports["CpuRef"].capabilities["CustomAllocator"] is False
        assert reports["CpuRef"].reason == "it does not use the allocator: it uses memory of its own"
        assert service.logged("allocator of HUGE_PAGES memory: backend Lifecycle uses it")
    finally:
        assert stop_service(service) == 0


def test_device_that_fails_to_start_closes_those_before_it(tmp_path: Path) -> None:
    lifecycle(tmp_path)
    environment = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NNHAL_TEST_LOG": str(tmp_path / "events")}
    devices = ("--device", "one=CpuAcc,Lifecycle", "--device", "two=CpuRef", "--no-extension", "litert")
    with pytest.raises(RuntimeError, match="no backend has this extension"):
        start_service(tmp_path, *devices, **environment)
    assert _events(tmp_path) == ["create", "destroy"] * 2
