"""A service with GpuAcc on SwiftShader, in the sandbox: results, warm starts, crashes, and machines without a GPU."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import CacheState, Model, Operand, OperandType, OperationType
from tests.driver.backends.gpu.software_gpu import NAME, require_software_gpu
from tests.driver.backends.litert.support.regions import region
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.tools.cli.command import invoke

pytestmark = pytest.mark.slow

OPTIONS = ("--backends", "GpuAcc,CpuAcc,CpuRef", "--backend-option", f"GpuAcc.adapter={NAME}")
ALWAYS = ("--backend-option", "GpuAcc.placement=always")
SHAPE = (1, 8, 8, 4)
VALUE = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(autouse=True)
def _software_gpu() -> None:
    require_software_gpu()


def model() -> Model:
    builder = nnhal.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, SHAPE)
    for type_ in (OperationType.TANH, OperationType.EXP):
        x = builder.add(type_, x, output=Operand(OperandType.TENSOR_FLOAT32, SHAPE))
    builder.output(x)
    return builder.build()


EXPECTED = np.exp(np.tanh(VALUE))


def test_models_run_on_the_gpu_and_start_warm(tmp_path: Path) -> None:
    for expected in (CacheState.SAVED, CacheState.HIT):
        service = start_service(tmp_path, *OPTIONS, *ALWAYS)
        try:
            with nnhal.connect(service.target) as device:
                assert device.type.name == "GPU"
                prepared = device.prepare(model(), cache=True).result()
                assert prepared.cache is not None and prepared.cache.state == expected
                assert {operation.backend for operation in prepared.placement.operations} == {"GpuAcc"}
                np.testing.assert_allclose(prepared.execute([VALUE])[0], EXPECTED, rtol=1e-5)
                with prepared.burst() as burst:
                    np.testing.assert_allclose(burst.execute([VALUE])[0], EXPECTED, rtol=1e-5)
        finally:
            assert stop_service(service) == 0


@pytest.mark.parametrize(("workers", "backend"), [("--worker-per-identity", "GpuAcc"), ("--workers=1", "CpuAcc")])
def test_region_runs_on_the_gpu_in_a_worker_of_one_client(tmp_path: Path, workers: str, backend: str) -> None:
    mirrored = region(build(Op("REVERSE_V2", [Tensor(SHAPE), ints(1)], [Tensor(SHAPE)], options("ReverseV2"))))
    service = start_service(tmp_path, *OPTIONS, *ALWAYS, workers)
    try:
        with nnhal.connect(service.target) as device, device.prepare(mirrored).result() as prepared:
            (operation,) = prepared.placement.operations
            assert operation.backend == backend
            np.testing.assert_array_equal(prepared.execute([VALUE])[0], VALUE[:, ::-1])
    finally:
        assert stop_service(service) == 0


def test_slower_gpu_leaves_models_to_the_cpu(tmp_path: Path) -> None:
    service = start_service(tmp_path, *OPTIONS)
    try:
        shown = invoke("info", "--target", service.target, "--json")
        (hardware, *_) = (backend["hardware"] for backend in json.loads(shown.stdout)["backends"])
        assert NAME in hardware["adapter"] and hardware.keys() == {
            *("adapter", "driver", "memory", "precision", "tiny model")
        }
        assert f"GpuAcc adapter: {hardware['adapter']}" in invoke("info", "--target", service.target).stdout
        with nnhal.connect(service.target) as device, device.prepare(model()).result() as prepared:
            (first, *_) = prepared.placement.operations
            assert first.backend == "CpuAcc"
            assert first.refusals[0].reason.startswith("slower on the GPU: GPU ")
    finally:
        assert stop_service(service) == 0


def test_killed_worker_costs_no_answer(tmp_path: Path) -> None:
    service = start_service(tmp_path, *OPTIONS, *ALWAYS)
    try:
        with nnhal.connect(service.target, timeout=120) as device:
            prepared = device.prepare(model(), cache=True).result()
            for number in range(12):
                if number % 4 == 2:
                    os.kill(service.pid, signal.SIGKILL)
                np.testing.assert_allclose(prepared.execute([VALUE])[0], EXPECTED, rtol=1e-5)
    finally:
        assert stop_service(service) == 0


def test_service_starts_without_a_gpu_and_says_why(tmp_path: Path) -> None:
    service = start_service(tmp_path, *OPTIONS, VK_DRIVER_FILES="/nonexistent.json")
    try:
        with nnhal.connect(service.target) as device:
            states = {backend.id: (backend.state.name, backend.reason) for backend in device.backends()}
            assert states["CpuAcc"][0] == "READY"
            state, reason = states["GpuAcc"]
            assert state != "READY" and "Vulkan finds no driver of a GPU" in reason
            np.testing.assert_allclose(device.prepare(model()).result().execute([VALUE])[0], EXPECTED, rtol=1e-5)
    finally:
        assert stop_service(service) == 0
