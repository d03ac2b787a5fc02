"""Random deep quantized networks give the same bits on CpuAcc and with LiteRT's default kernels."""

import numpy as np
import pytest
from PIL import Image

from nnhal.tflite import parse
from nnhal.types import AnyArray
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.driver.backends.litert.support.deep_networks import (
    KINDS,
    SIZE,
    Network,
    float_file,
    quantized_file,
    random_network,
)
from tests.driver.one_operation import execute, prepare
from tests.nnhal.tflite.build import pack, unpack
from tests.shared import shared

interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")


def run_engine(file: bytes, array: AnyArray) -> list[AnyArray]:
    """Run a file with LiteRT and its default kernels."""
    engine = interpreter.Interpreter(model_content=file, num_threads=1)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], array)
    engine.invoke()
    return [engine.get_tensor(details["index"]) for details in engine.get_output_details()]


def picture(name: str) -> AnyArray:
    """Return a picture in -1..1, or noise."""
    if name == "noise":
        return np.asarray(np.random.default_rng(1).uniform(-1, 1, (1, SIZE, SIZE, 3)), np.float32)
    with Image.open(shared(f"models/{name}.bmp")) as image:
        return np.asarray(image.convert("RGB").resize((SIZE, SIZE)), np.float32)[np.newaxis] / 127.5 - 1


def calibrated(seed: int, depth: int, image: AnyArray) -> Network:
    """Return a network with the ranges that its values have on a picture."""
    network = random_network(seed, depth)
    file, values = float_file(network)
    for value, array in zip(values, run_engine(file, image), strict=True):
        value.low, value.high = float(array.min()), float(array.max())
    return network


def quantize(image: AnyArray, kind: str) -> AnyArray:
    """Return a picture in -1..1 as the input of a quantized network."""
    if kind == "INT16":
        return np.asarray(np.rint(image * 32767), np.int16)
    lowest = 0 if kind == "UINT8" else -128
    dtype = np.uint8 if kind == "UINT8" else np.int8
    return np.asarray(np.clip(np.rint(image * 127.5 + 127.5 + lowest), lowest, lowest + 255), dtype)


def run_device(file: bytes, array: AnyArray) -> AnyArray:
    outcome = prepare(parse(file), Device("test", registry.create(["CpuAcc", "CpuRef"])))
    assert outcome.prepared_model is not None, outcome.reason
    assert {operation.backend for operation in outcome.prepared_model.placement.operations} == {"CpuAcc"}
    (output,) = execute(outcome, [array])[1]
    return np.asarray(output)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 60))])
@pytest.mark.parametrize("kind", KINDS)
def test_quantized_networks_are_equal(kind: str, seed: int) -> None:
    for name in ("cat", "noise"):
        image = picture(name)
        network = calibrated(seed, 8 + seed % 40, image)
        file, array = quantized_file(network, kind), quantize(image, kind)
        np.testing.assert_array_equal(run_device(file, array), run_engine(file, array)[0], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_shapes_are_computed_as_if_they_had_them(kind: str) -> None:
    """LiteRT chooses other kernels, which round otherwise, for a file that does not declare the shapes of tensors."""
    image = picture("cat")
    network = calibrated(0, 20, image)
    array = quantize(image, kind)
    bare, declared = (quantized_file(network, kind, has_shapes=has_shapes) for has_shapes in (False, True))
    np.testing.assert_array_equal(run_device(bare, array), run_engine(declared, array)[0])


@pytest.mark.slow
def test_mobilenet_edgetpu_is_equal_if_its_shapes_are_declared() -> None:
    file = shared("models/mobilenet_edgetpu_224_1.0_uint8.tflite").read_bytes()
    with Image.open(shared("models/cat.bmp")) as image:
        array = np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))[np.newaxis]
    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    engine = interpreter.Interpreter(model_content=file, experimental_op_resolver_type=plain)
    engine.allocate_tensors()
    model = unpack(file)
    for index, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.shape = engine._get_tensor_details(index, 0)["shape"]
        tensor.shapeSignature = None
    device = run_device(file, array)
    np.testing.assert_array_equal(device, run_engine(pack(model), array)[0])
    assert (device != run_engine(file, array)[0]).any()  # otherwise docs/tflite.md has an exception too many
