"""A plug-in of several files whose creators register themselves, with operations of the HAL and of an extension."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import CacheState, Model, Operand, OperandType, OperationType
from tests.end_to_end.backends.creators.creators_base import COMPACT, FACTOR, NAME, SCALE
from tests.end_to_end.support.service_process import Service, start_service, stop_service

X = np.array([1, -2, 3], np.float32)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ("--backends", "Creators,CpuRef", "--device", "one", "--device", "two")
    folder = Path(__file__).parent / "creators"
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(folder), "NNHAL_MERGE_PARTITIONS": "false"}
    started = start_service(tmp_path_factory.mktemp("creators"), *options, **settings)
    yield started
    assert stop_service(started) == 0


@pytest.fixture(params=["auto", "grpc"])
def device(service: Service, request: pytest.FixtureRequest) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, device="one", transport=request.param) as connected:
        yield connected


def model(constant: bool, compact: bool = True) -> Model:
    """Return x -> RELU -> SCALE -> COMPACT, with a scalar of the extension as a constant or an input."""
    b = nnhal.ModelBuilder()
    extension = b.extension(NAME)
    floats = Operand(OperandType.TENSOR_FLOAT32, (3,))
    x = b.input(floats.type, floats.dimensions)
    factor_type = extension.operand_type(FACTOR)
    factor = b.constant(b"12", factor_type) if constant else b.input(factor_type)
    relu = b.add(OperationType.RELU, x, output=floats)
    scaled = b.add(extension.operation_type(SCALE), relu, factor, output=floats)
    if compact:
        some = Operand(OperandType.TENSOR_FLOAT32, (0,))
        less = b.add(OperationType.SUB, scaled, np.full(3, 1201, np.float32), 0, output=floats)
        scaled = b.add(extension.operation_type(COMPACT), less, output=some)
    b.output(scaled)
    return b.build()


EXPECTED = (X.clip(0) + 100) * 12
COMPACTED = (EXPECTED - 1201)[EXPECTED > 1201]


@pytest.mark.parametrize("constant", [True, False])
def test_execution(device: nnhal.Device, constant: bool) -> None:
    prepared = device.prepare(model(constant)).result()
    assert [operation.backend for operation in prepared.placement.operations] == [
        "Creators",
        "Creators",
        "CpuRef",
        "Creators",
    ]
    for _ in range(2):
        np.testing.assert_array_equal(prepared.execute([X] if constant else [X, b"12"])[0], COMPACTED)


def test_burst(device: nnhal.Device) -> None:
    with device.prepare(model(constant=False)).result().burst() as burst:
        for _ in range(2):
            np.testing.assert_array_equal(burst.execute([X, b"12"])[0], COMPACTED)


def test_fenced_execution(device: nnhal.Device) -> None:
    prepared = device.prepare(model(constant=True, compact=False)).result()
    execution = prepared.execute_fenced([X])
    np.testing.assert_array_equal(execution.result()[0], EXPECTED)


def test_warm_start(device: nnhal.Device) -> None:
    device.prepare(model(constant=True), cache=True).result()
    again = device.prepare(model(constant=True), cache=True).result()
    assert again.cache.state == CacheState.HIT
    np.testing.assert_array_equal(again.execute([X])[0], COMPACTED)


def test_each_device_has_the_creators(service: Service) -> None:
    for name in ("one", "two"):
        with nnhal.connect(service.target, device=name) as device:
            prepared = device.prepare(model(constant=True, compact=False)).result()
            assert {operation.backend for operation in prepared.placement.operations} == {"Creators"}
            np.testing.assert_array_equal(prepared.execute([X])[0], EXPECTED)
