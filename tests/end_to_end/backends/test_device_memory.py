"""Plug-ins for devices with a queue and memory of their own, in Python and in C, behind a service."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import AnyArray, CacheState, Model, Operand, OperandType, OperationType
from tests.concurrency import run_concurrently
from tests.driver.backends.native.building import HEADERS, build
from tests.end_to_end.support.service_process import Service, start_service, stop_service

X = np.array([[1, -2, 3]], np.float32)
BACKENDS = {"python": "ExampleQueue", "c": "Queued"}


@pytest.fixture(scope="module", params=["python", "c"])
def language(request: pytest.FixtureRequest) -> str:
    language: str = request.param
    return language


@pytest.fixture(scope="module")
def service(language: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp(language)
    if language == "c":
        source = Path(__file__).parents[2] / "driver" / "backends" / "native" / "queued.c"
        build(source, folder / "Test_Queued_backend.so", HEADERS, "-pthread")
    else:
        example = Path(__file__).parents[3] / "examples" / "backends" / "Example_Queue_backend.py"
        (folder / example.name).write_text(example.read_text())
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(folder), "NNHAL_MERGE_PARTITIONS": "false"}
    started = start_service(folder, "--backends", f"{BACKENDS[language]},CpuRef", **settings)
    yield started
    assert stop_service(started) == 0


@pytest.fixture(params=["auto", "grpc"])
def device(service: Service, request: pytest.FixtureRequest) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as connected:
        yield connected


def model() -> Model:
    """Return x -> max(-x, relu(-x)) and -x, in three partitions."""
    b = nnhal.ModelBuilder()
    floats = Operand(OperandType.TENSOR_FLOAT32, X.shape)
    first = b.add(OperationType.NEG, b.input(floats.type, floats.dimensions), output=floats)
    relu = b.add(OperationType.RELU, first, output=floats)
    b.output(b.add(OperationType.MAXIMUM, first, relu, output=floats))
    b.output(first)
    return b.build()


def assert_results(outputs: Iterable[AnyArray], value: object = X) -> None:
    maximum, negated = outputs
    np.testing.assert_array_equal(negated, -np.asarray(value))
    np.testing.assert_array_equal(maximum, (-np.asarray(value)).clip(0))


def test_execution(device: nnhal.Device, language: str) -> None:
    prepared = device.prepare(model()).result()
    own = BACKENDS[language]
    assert [partition.backend for partition in prepared.placement.partitions] == [own, "CpuRef", own]
    for _ in range(3):
        assert_results(prepared.execute([X]))


def test_burst_and_reusable_execution(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    with prepared.burst() as burst:
        for number in range(3):
            assert_results(burst.execute([X + np.float32(number)]), X + np.float32(number))
    with prepared.reusable([X]) as execution:
        assert_results(execution.run())


def test_fenced_executions(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    executions = [prepared.execute_fenced([X + np.float32(number)]) for number in range(10)]
    for number, execution in enumerate(executions):
        assert_results(execution.result(), X + np.float32(number))


def test_warm_start(device: nnhal.Device) -> None:
    device.prepare(model(), cache=True).result()
    again = device.prepare(model(), cache=True).result()
    assert again.cache.state == CacheState.HIT
    assert_results(again.execute([X]))


def test_profile(device: nnhal.Device, language: str) -> None:
    profile = device.prepare(model()).result().profile([X])
    assert_results(profile.outputs)
    assert BACKENDS[language] in {span.backend for span in profile.spans}


def test_concurrent_clients(service: Service) -> None:
    def work(number: int) -> None:
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(model()).result()
            for turn in range(20):
                value = X * np.float32(number + turn)
                assert_results(prepared.execute([value]), value)

    run_concurrently(3, work)
