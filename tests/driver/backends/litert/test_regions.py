"""Regions of the LiteRT extension on CpuAcc, compared with LiteRT alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnhal import tflite
from nnhal.types import AnyArray, DataLocation, Memory, Request, RequestArgument, ReturnedPool
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.driver.backends.litert.support.regions import region
from tests.driver.one_operation import execute, prepare
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """Yield a device with the backends of a service."""
    device = Device("regions", registry.create(["CpuAcc", "CpuRef"]))
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


def test_shape_that_depends_on_values(device: Device) -> None:
    data = positions()
    prepared = prepare(tflite.parse(data), device)
    assert {each.backend for each in prepared.placement.operations} >= {"CpuAcc"}
    for seed in range(5):
        x = np.random.default_rng(seed).random((2, 3), np.float32)
        np.testing.assert_array_equal(execute(prepared, [x])[1][0], run_litert(data, x))


def test_threads_run_a_region_at_the_same_time(device: Device) -> None:
    data = positions()
    prepared = prepare(tflite.parse(data), device)
    values = [np.random.default_rng(seed).random((2, 3), np.float32) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: execute(prepared, [x])[1][0], values))
    for x, result in zip(values, results, strict=True):
        np.testing.assert_array_equal(result, run_litert(data, x))


def test_no_element_is_found(device: Device) -> None:
    x, found = Tensor((2, 3), "BOOL"), Tensor((1, 2), "INT64")
    prepared = prepare(region(build(Op("WHERE", [x], [found])), is_dynamic=True), device).prepared_model
    assert prepared is not None
    for value in (True, False):
        array = np.full((2, 3), value)
        arguments = (RequestArgument(False, DataLocation(0, 0, array.nbytes)),)
        request = Request(arguments, (RequestArgument(False, DataLocation(1)),), (Memory.of(array), ReturnedPool()))
        (shape,) = prepared.execute_synchronously(request).output_shapes
        assert shape.dimensions == (6 if value else 0, 2)


def test_dimension_that_each_execution_chooses(device: Device) -> None:
    x = Tensor((2, 3), name="x")
    data = build(Op("CUMSUM", [x, Tensor((), "INT32", 1)], [Tensor((2, 3))], options("Cumsum")), inputs=[x])
    prepared = prepare(tflite.parse(data, shapes={"x": (None, 3)}), device)
    for rows in (2, 5, 1):
        values = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(execute(prepared, [values])[1][0], values.cumsum(1))


def test_model_that_litert_refuses_is_unsupported(device: Device) -> None:
    x, y = Tensor((2, 3), name="x"), Tensor((4,), name="y")
    outcome = prepare(tflite.parse(build(Op("ATAN2", [x, y], [Tensor((2, 3))]))), device)
    assert outcome.prepared_model is None
    assert "CpuAcc cannot compile main" in outcome.reason


def test_setting_with_the_former_backend_is_told_what_replaces_it() -> None:
    with pytest.raises(ValueError, match="there is no backend 'Unverified'; CpuAcc runs all regions"):
        registry.create(["CpuAcc", "Unverified"])
