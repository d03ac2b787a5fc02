"""Regions that CpuAcc cannot verify, on the backend Unverified, compared with LiteRT alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnhal import tflite
from nnhal.types import AnyArray
from nnhal_driver.backends import registry
from nnhal_driver.backends.litert import unverified
from nnhal_driver.backends.litert.engine import create_interpreter
from nnhal_driver.device import Device
from nnhal_service.settings import Settings
from tests.driver.one_operation import execute, prepare
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture(scope="module")
def embedded() -> Iterator[Device]:
    """Yield a device with the backends of an embedded service."""
    device = Device("embedded", registry.create(["CpuAcc", "CpuRef", "Unverified"]))
    yield device
    device.close()


def positions() -> bytes:
    """Return the sum of the positions of elements above 0.5. Their number depends on the values."""
    x, above = Tensor((2, 3), name="x"), Tensor((2, 3), "BOOL")
    found, cast, total = Tensor((1, 2), "INT64"), Tensor((1, 2)), Tensor((2,))
    return build(
        Op("GREATER", [x, Tensor((), data=0.5)], [above]),
        Op("WHERE", [above], [found]),
        Op("CAST", [found], [cast]),
        Op("SUM", [cast, ints(0)], [total], options("Reducer")),
        inputs=[x],
    )


def run_litert(data: bytes, x: AnyArray) -> AnyArray:
    engine = interpreter.Interpreter(model_content=data)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    return np.asarray(engine.get_tensor(engine.get_output_details()[0]["index"]))


def test_shape_that_depends_on_values(embedded: Device) -> None:
    data = positions()
    prepared = prepare(tflite.parse(data), embedded)
    assert {each.backend for each in prepared.placement.operations} >= {"Unverified"}
    for seed in range(5):
        x = np.random.default_rng(seed).random((2, 3), np.float32)
        np.testing.assert_array_equal(execute(prepared, [x])[1][0], run_litert(data, x))


def test_threads_run_a_region_at_the_same_time(embedded: Device) -> None:
    data = positions()
    prepared = prepare(tflite.parse(data), embedded)
    values = [np.random.default_rng(seed).random((2, 3), np.float32) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: execute(prepared, [x])[1][0], values))
    for x, result in zip(values, results, strict=True):
        np.testing.assert_array_equal(result, run_litert(data, x))


def test_model_that_litert_refuses_is_unsupported(embedded: Device) -> None:
    x, y = Tensor((2, 3), name="x"), Tensor((4,), name="y")
    outcome = prepare(tflite.parse(build(Op("ATAN2", [x, y], [Tensor((2, 3))]))), embedded)
    assert outcome.prepared_model is None
    assert "Unverified: " in outcome.reason


def test_support_and_compilation_create_one_interpreter(embedded: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[object] = []

    def create(model: bytes) -> object:
        created.append(create_interpreter(model))
        return created[-1]

    monkeypatch.setattr(unverified, "create_interpreter", create)
    prepared = prepare(tflite.parse(positions()), embedded)
    execute(prepared, [np.ones((2, 3), np.float32)])
    assert len(created) == 1


def test_services_do_not_have_the_backend_by_default() -> None:
    assert "Unverified" not in Settings().backends


def test_other_operations_are_refused() -> None:
    device = Device("alone", registry.create(["Unverified"]))
    outcome = prepare(tflite.parse(build(Op("EXP", [Tensor((2,))], [Tensor((2,))]))), device)
    device.close()
    assert "it runs regions of the LiteRT extension only" in outcome.reason
