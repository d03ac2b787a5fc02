"""A service on a machine with 1 GiB of memory, as a container has: what fits, and what is refused by name."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import ErrorStatus, Model, OperandType
from nnhal.types import OperationType as Op
from nnhal_service.identity.tokens import create_token
from tests.concurrency import wait_until
from tests.driver.one_operation import boolean, int32, model_of, tensor
from tests.end_to_end.support.load_clients import SIZE, WEIGHTS, adding_model
from tests.end_to_end.support.process_usage import status_bytes
from tests.end_to_end.support.raw_client import open_raw_session
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids

pytestmark = pytest.mark.slow

MEBIBYTE = 2**20
SMALL_MACHINE = "tests.end_to_end.service.small_machine"
ROOT = Path(__file__).parents[3]
_STACKS = 96 * 8 * MEBIBYTE
"""Stacks of the threads of a worker, and of those that it may start: most of this is never touched."""


@pytest.fixture(params=["", "--probe"])
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    (tmp_path / "memory.max").write_text(f"{2**30}\n")
    options = ["--no-worker-per-identity", *filter(None, [request.param])]
    running = start_service(tmp_path, *options, module=SMALL_MACHINE, **_environment(tmp_path))
    yield running
    assert stop_service(running) == 0


def data_limit(pid: int) -> int:
    """Return the limit on the memory that a process may allocate."""
    return resource.prlimit(pid, resource.RLIMIT_DATA)[0]


def execute(device: nnhal.Device) -> None:
    with device.prepare(adding_model()).result(60) as prepared:
        np.testing.assert_array_equal(prepared.execute([np.ones(SIZE, np.float32)])[0], WEIGHTS + 1)


def greedy_model() -> Model:
    """Return a convolution of small tensors that needs 4 GiB for a temporary."""
    wide = 2**15 - 1
    image, filter_, bias = (
        (tensor(OperandType.TENSOR_FLOAT32, shape), np.ones(shape)) for shape in ((1, 1, 1, 1), (1, 2, 2, 1), (1,))
    )
    numbers = map(int32, (*[wide // 2] * 4, wide, wide, 0))
    dilation = map(int32, (wide // 2, wide // 2))
    inputs = [image, filter_, bias, *numbers, boolean(False), *dilation]
    return model_of(Op.CONV_2D, inputs, [tensor(OperandType.TENSOR_FLOAT32)])


def test_a_worker_has_what_others_leave(service: Service) -> None:
    assert wait_until(lambda: data_limit(service.pid) < 2**30 + _STACKS, 60)
    with nnhal.connect(service.target) as device:
        execute(device)
        with open_raw_session(service.target) as raw:
            assert 500 * MEBIBYTE < raw.opened.limits["service_memory_bytes"] < 700 * MEBIBYTE
        with pytest.raises(nnhal.HalError) as caught, device.prepare(greedy_model()).result(60) as prepared:
            prepared.execute([])
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        execute(device)
    assert status_bytes(service.pid, "VmHWM") < 2**30


def test_workers_of_one_client_serve_small_models(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{2**30}\n")
    created = [create_token(f"client-{number}") for number in range(12)]
    (tmp_path / "tokens").write_text("\n".join(line for _, line in created))
    arguments = [f"--tokens={tmp_path / 'tokens'}", "--backends=CpuRef"]
    service = start_service(tmp_path, *arguments, module=SMALL_MACHINE, **_environment(tmp_path))
    try:
        devices = [nnhal.connect(service.target, token=secret) for secret, _ in created]
        for device in devices:
            execute(device)
        shared, *private = worker_pids(service.process.pid)
        assert len(private) == 10, "a quarter of the memory is for ten of them"
        assert all(192 * MEBIBYTE < data_limit(pid) < data_limit(shared) for pid in private)
        for device in devices:
            device.close()
    finally:
        assert stop_service(service) == 0


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables of the program that imitates a small machine."""
    return {"MEMORY_MAX": str(folder / "memory.max"), "PYTHONPATH": str(ROOT)}
