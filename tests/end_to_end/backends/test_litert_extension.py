"""The LiteRT extension on a real service: models with regions, types that NNAPI lacks, and devices without it."""

from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.tflite
from nnhal import litert_extension
from nnhal.client.core.session import Transport
from nnhal.types import AnyArray, CacheState, ErrorStatus
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.nnhal.tflite.build import Op, Tensor, build, options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
RNG = np.random.default_rng(3)


def mixed_model() -> bytes:
    """Return TANH, a product of int64 with two outputs outside of NNAPI, and ADD on the real branch."""
    x, index = Tensor((2, 3), name="x"), Tensor((2, 3), "INT64", name="index")
    tanh, product, total = Tensor((2, 3)), Tensor((2, 3), "INT64", name="product"), Tensor((2, 3), name="total")
    widened = Tensor((2, 3), "FLOAT64")
    double = Tensor((2, 3), "FLOAT64", name="double")
    return build(
        Op("TANH", [x], [tanh]),
        Op("MUL", [index, index], [product], options("Mul")),
        Op("CAST", [tanh], [widened], options("Cast", inDataType=0, outDataType=10)),
        Op("CAST", [index], [double], options("Cast", inDataType=4, outDataType=10)),
        Op("ADD", [tanh, x], [total], options("Add")),
        inputs=[x, index],
        outputs=[total, product, double, widened],
    )


def run_litert(data: bytes, inputs: list[AnyArray]) -> list[AnyArray]:
    engine = interpreter.Interpreter(model_content=data, num_threads=1)
    engine.allocate_tensors()
    for detail, value in zip(engine.get_input_details(), inputs, strict=True):
        engine.set_tensor(detail["index"], value)
    engine.invoke()
    return [engine.get_tensor(detail["index"]) for detail in engine.get_output_details()]


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_types_outside_of_nnapi(service: Service, transport: Transport) -> None:
    data = mixed_model()
    inputs: list[AnyArray] = [RNG.random((2, 3), np.float32), RNG.integers(-(2**31), 2**31, (2, 3))]
    with nnhal.connect(service.target, transport=transport) as device:
        prepared = device.prepare(nnhal.tflite.parse(data)).result(60)
        assert [info.dtype for info in prepared.inputs] == [np.float32, np.int64]
        for _ in range(3):
            outputs = prepared.execute(inputs)
            for actual, expected in zip(outputs, run_litert(data, inputs), strict=True):
                assert actual.dtype == expected.dtype
                np.testing.assert_array_equal(actual, expected)
        with pytest.raises(nnhal.HalError, match=r"input 1 \(index\) is int32; the model takes int64"):
            prepared.execute([inputs[0], inputs[1].astype(np.int32)])
        with pytest.raises(nnhal.HalError, match=r"has shape \[3, 2\]; the model takes \[2, 3\]"):
            prepared.execute([inputs[0], inputs[1].reshape(3, 2)])


def test_device_lists_the_extension(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert litert_extension.EXTENSION in device.extensions


def test_cached_model(tmp_path: Path) -> None:
    """The second preparation loads compiled sub-models from the cache."""
    model = nnhal.tflite.parse(mixed_model())
    inputs: list[AnyArray] = [RNG.random((2, 3), np.float32), RNG.integers(-9, 9, (2, 3))]
    results = []
    for _ in range(2):
        service = start_service(tmp_path)
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(model, cache=True).result(60)
            results.append((prepared.cache.state, prepared.execute(inputs)))
        assert stop_service(service) == 0
    assert [state for state, _ in results] == [CacheState.SAVED, CacheState.HIT]
    for first, second in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("options", [("--no-extension", "litert"), ("--backends", "CpuRef")], ids=["option", "CpuRef"])
def test_device_without_the_extension(tmp_path: Path, options: tuple[str, ...]) -> None:
    service = start_service(tmp_path, *options)
    with nnhal.connect(service.target) as device:
        assert device.extensions == ()
        with pytest.raises(nnhal.HalError, match="is not supported") as caught:
            device.prepare(nnhal.tflite.parse(mixed_model())).result(60)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert stop_service(service) == 0


def test_damaged_submodel_is_unsupported(service: Service) -> None:
    """A byte changed in the middle of a region: the reason names the sub-model, and the service answers on."""
    model = nnhal.tflite.parse(mixed_model())
    (pool,) = model.pools
    assert isinstance(pool, nnhal.types.Memory)
    with nnhal.connect(service.target) as device:
        refused = 0
        for position in RNG.integers(8, pool.size, 40):
            damaged = pool.view.copy()
            damaged[position] ^= 0x81
            changed = nnhal.types.Model(
                model.main,
                operand_values=model.operand_values,
                pools=(nnhal.types.Memory.of(damaged),),
                extension_name_to_prefix=model.extension_name_to_prefix,
            )
            try:
                device.prepare(changed).result(60).close()
            except nnhal.HalError as error:
                assert "SUBMODEL of org.nnhal.litert" in error.reason
                refused += 1
        assert refused
        device.prepare(model).result(60).close()
