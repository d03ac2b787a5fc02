"""The first minutes with both clients: descriptions in a REPL, models by path, options by name, wrong types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from tests.end_to_end.support.service_process import Service

DIGITS = Path(__file__).parents[3] / "tools/nnhal_tools/demo/digits.tflite"
ENDS = "with inputs image: float32[1, 8, 8, 1]; outputs probabilities: float32[1, 10]"
IMAGE = np.zeros((1, 8, 8, 1), np.float32)
EXPECTED_INPUTS = "expected a list with one value per input, or a dict by name"

Call = Callable[[Any, Any], Any]
"""Call of a device or a prepared model, of either client."""

WRONG_TYPES: list[tuple[Call, str]] = [
    (lambda device, _: device.prepare(5), r"model is 5 \(int\); expected a nnhal.Model, or the path"),
    (lambda device, _: device.explain(5), r"model is 5 \(int\); expected a nnhal.Model, or the path"),
    (lambda device, _: device.cached(5), r"model is 5 \(int\); expected a nnhal.Model, or the path"),
    (lambda device, _: device.prepare(DIGITS, token="x"), r"token is 'x' \(str\); expected bytes"),
    (lambda device, _: device.prepare(DIGITS, deadline="1"), r"deadline is '1' \(str\); expected a number"),
    (lambda device, _: device.prepare(DIGITS, priority=1.5), r"Priority is 1\.5 \(float\); expected one of LOW"),
    (lambda device, _: device.allocate(inputs=5), r"a role list is 5 \(int\); expected a list of pairs"),
    (
        lambda device, prepared: device.allocate(inputs=(prepared, 0)),
        r"a role is a PreparedModel; expected a list of pairs",
    ),
    (lambda _, prepared: prepared.execute(5), rf"inputs is 5 \(int\); {EXPECTED_INPUTS}"),
    (lambda _, prepared: prepared.execute(None), rf"inputs is None \(NoneType\); {EXPECTED_INPUTS}"),
    (lambda _, prepared: prepared.execute(IMAGE), f"inputs is a ndarray; {EXPECTED_INPUTS}"),
    (lambda _, prepared: prepared.execute("image"), rf"inputs is 'image' \(str\); {EXPECTED_INPUTS}"),
    (lambda _, prepared: prepared.execute([IMAGE], outputs=5), r"outputs is 5 \(int\); expected buffers"),
    (lambda _, prepared: prepared.execute([IMAGE], outputs=[5]), r"output 0 is 5 \(int\); expected a nnhal.Buffer"),
    (lambda _, prepared: prepared.execute([IMAGE], deadline="1"), r"deadline is '1' \(str\); expected a number"),
    (lambda _, prepared: prepared.execute_fenced(5), rf"inputs is 5 \(int\); {EXPECTED_INPUTS}"),
    (lambda _, prepared: prepared.execute_fenced([IMAGE], wait_for=5), r"wait_for is 5 \(int\); expected a list"),
    (lambda _, prepared: prepared.execute_fenced([IMAGE], wait_for=[5]), r"wait_for is 5 \(int\); expected a fence"),
    (lambda _, prepared: prepared.reusable(5), rf"inputs is 5 \(int\); {EXPECTED_INPUTS}"),
]
"""Calls of either client, and the message of the TypeError that they raise."""


def test_descriptions(service: Service) -> None:
    with nnhal.connect(service.target, device="nnhal") as device:
        assert repr(device) == f"<nnhal.Device 'nnhal' of {service.target}>"
        prepared = device.prepare(DIGITS).result(60)
        assert repr(prepared) == f"<nnhal.PreparedModel {ENDS}>"
        with device.allocate(inputs=[(prepared, "image")]) as buffer:
            assert repr(buffer) == f"<nnhal.Buffer {buffer.token}: float32[1, 8, 8, 1]>"
        with prepared.burst() as burst:
            assert repr(burst) == f"<nnhal.Burst {ENDS}>"
        assert repr(burst) == f"<nnhal.Burst {ENDS}, closed>"
        prepared.close()
        assert repr(prepared) == f"<nnhal.PreparedModel {ENDS}, closed>"
    assert repr(device) == f"<nnhal.Device 'nnhal' of {service.target}, closed>"


async def test_async_descriptions(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        assert repr(device) == f"<nnhal.aio.Device of {service.target}>"
        prepared = await device.prepare(DIGITS)
        assert repr(prepared) == f"<nnhal.aio.PreparedModel {ENDS}>"
        async with await device.allocate(inputs=[(prepared, "image")]) as buffer:
            assert repr(buffer) == f"<nnhal.aio.Buffer {buffer.token}: float32[1, 8, 8, 1]>"
        async with prepared.burst() as burst:
            assert repr(burst) == f"<nnhal.aio.Burst {ENDS}>"


def test_inputs_have_name_shape_and_dtype(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(str(DIGITS)).result(60) as prepared:
        (image,), (probabilities,) = prepared.inputs, prepared.outputs
        assert (image.name, image.shape, image.dtype) == ("image", (1, 8, 8, 1), np.float32)
        assert (probabilities.name, probabilities.shape, probabilities.dtype) == ("probabilities", (1, 10), np.float32)
        assert image.type == nnhal.OperandType.TENSOR_FLOAT32 and image.dimensions == image.shape
        assert repr(image) == "TensorInfo(name='image', shape=(1, 8, 8, 1), dtype=float32, type=TENSOR_FLOAT32)"
        outputs = prepared.execute([np.zeros(image.shape or (), image.dtype)])
        assert outputs[0].shape == probabilities.shape


def test_models_by_path_wherever_a_model_is_taken(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert device.supported_operations(DIGITS) == [True] * 5
        assert len(device.explain(DIGITS).operations) == 5
        assert device.cached(DIGITS) == device.cached(nnhal.tflite.load(DIGITS))


async def test_async_models_by_path_wherever_a_model_is_taken(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        assert await device.supported_operations(DIGITS) == [True] * 5
        assert len((await device.explain(DIGITS)).operations) == 5
        assert await device.cached(DIGITS) == await device.cached(nnhal.tflite.load(DIGITS))


async def test_options_by_name(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        saved = device.prepare(DIGITS, cache=True, priority="high", preference="sustained_speed").result(60)
        assert saved.cache.state == nnhal.CacheState.SAVED
        numbers: Any = {"priority": nnhal.Priority.HIGH, "preference": nnhal.ExecutionPreference.SUSTAINED_SPEED}
        assert device.prepare(DIGITS, cache=True, **numbers).result(60).cache.state == nnhal.CacheState.HIT
        with pytest.raises(nnhal.HalError, match="unknown Priority 'hihg'; expected one of LOW, MEDIUM, HIGH"):
            device.prepare(DIGITS, priority="hihg")
    async with nnhal.aio.connect(service.target) as async_device:
        hit = await async_device.prepare(DIGITS, cache=True, priority="HIGH", preference="SUSTAINED_SPEED")
        assert hit.cache.state == nnhal.CacheState.HIT
        with pytest.raises(nnhal.HalError, match="unknown ExecutionPreference 'fast'; expected one of LOW_POWER"):
            await async_device.prepare(DIGITS, preference="fast")


@pytest.mark.parametrize(("call", "reason"), WRONG_TYPES)
def test_wrong_types(service: Service, call: Call, reason: str) -> None:
    with nnhal.connect(service.target) as device, device.prepare(DIGITS).result(60) as prepared:
        with pytest.raises(TypeError, match=reason):
            call(device, prepared)
        assert prepared.execute([IMAGE])[0].shape == (1, 10)


@pytest.mark.parametrize(("call", "reason"), WRONG_TYPES)
async def test_async_wrong_types(service: Service, call: Call, reason: str) -> None:
    async with nnhal.aio.connect(service.target) as device, await device.prepare(DIGITS) as prepared:
        with pytest.raises(TypeError, match=reason):
            await call(device, prepared)
        assert (await prepared.execute([IMAGE]))[0].shape == (1, 10)
