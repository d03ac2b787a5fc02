"""Real models agree with LiteRT within the tolerances of ../shared/models/README.md.

CpuRef is compared with LiteRT's reference kernels, CpuAcc with its default interpreter: bit by bit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
import nnhal.tflite
from nnhal.types import AnyArray, Model
from nnhal.types import OperationType as Op
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import MODELS, shared


@pytest.fixture(scope="module")
def cpu_ref_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service without CpuAcc."""
    running = start_service(tmp_path_factory.mktemp("plain"), "--backends", "CpuRef")
    yield running
    stop_service(running)


def engine_outputs(path: Path, inputs: list[AnyArray], kernels: str) -> list[list[AnyArray]]:
    """Return the outputs of LiteRT for each input. `kernels`: a name in OpResolverType."""
    module: Any = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    resolver = getattr(module.OpResolverType, kernels)
    interpreter = module.Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    results = []
    for data in inputs:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], data)
        interpreter.invoke()
        results.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return results


def inputs_for(path: Path) -> list[AnyArray]:
    """Return random noise, and photographs if the model takes images."""
    module: Any = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    (detail,) = module.Interpreter(str(path)).get_input_details()
    shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
    rng = np.random.default_rng(3)
    if dtype == np.float32:
        noise = rng.random(shape, np.float32)
    else:
        info = np.iinfo(dtype)
        noise = rng.integers(info.min, info.max + 1, shape, dtype)
    return [noise, *(photograph(name, shape, dtype) for name in ("cat", "grace_hopper") if len(shape) == 4)]


def photograph(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return an image in the format of a model."""
    from PIL import Image

    with Image.open(shared(f"models/{name}.bmp")) as opened:
        image = opened.convert("RGB" if shape[3] == 3 else "L").resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32).reshape(shape)
    return (pixels / 255 if dtype == np.float32 else pixels - (dtype == np.int8) * 128).astype(dtype)


def compare(model: Model, ours: AnyArray, theirs: AnyArray) -> None:
    """Compare two outputs within the tolerances of the README."""
    kinds = {operation.type for operation in model.main.operations}
    if theirs.dtype == np.int64:
        assert np.mean(ours == theirs) >= 0.995
        return
    if theirs.dtype == np.float32:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    else:
        difference = np.abs(ours.astype(int) - theirs.astype(int)).max()
        assert difference <= (3 if Op.SOFTMAX in kinds else 1)
    if theirs.ndim == 2:
        assert theirs.ravel()[int(ours.argmax())] == theirs.max()


@pytest.mark.parametrize("name", MODELS)
def test_cpu_ref_agrees_with_the_reference_kernels(name: str, cpu_ref_service: Service) -> None:
    path = shared(f"models/{name}.tflite")
    inputs = inputs_for(path)
    model = nnhal.tflite.load(path)
    with nnhal.connect(cpu_ref_service.target) as device, device.prepare(model).result(120) as prepared:
        for data, expected in zip(inputs, engine_outputs(path, inputs, "BUILTIN_REF"), strict=True):
            for ours, theirs in zip(prepared.execute([data]), expected, strict=True):
                compare(model, ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_cpu_acc_agrees_with_the_default_interpreter(name: str, service: Service) -> None:
    path = shared(f"models/{name}.tflite")
    inputs = inputs_for(path)
    with nnhal.connect(service.target) as device, device.prepare(nnhal.tflite.load(path)).result(120) as prepared:
        assert {operation.backend for operation in prepared.placement.operations} == {"CpuAcc"}
        for data, expected in zip(inputs, engine_outputs(path, inputs, "AUTO"), strict=True):
            for ours, theirs in zip(prepared.execute([data]), expected, strict=True):
                # DeepLab has a QUANTIZE from uint8 to uint8; the two operations of NNAPI for it round differently
                assert np.mean(ours == theirs) >= (0.995 if theirs.dtype == np.int64 else 1)


@pytest.mark.parametrize(
    ("name", "image", "label"),
    [
        ("mobilenet_v1_0.25_128_quant", "cat", "Egyptian cat"),
        ("mobilenet_v2_1.0_224_quant", "cat", "Egyptian cat"),
        ("mobilenet_v2_1.0_224_quant", "grace_hopper", "military uniform"),
    ],
)
def test_best_label(name: str, image: str, label: str, service: Service) -> None:
    path = shared(f"models/{name}.tflite")
    labels = shared("models/imagenet_labels.txt").read_text().splitlines()
    model = nnhal.tflite.load(path)
    with nnhal.connect(service.target) as device, device.prepare(model).result(120) as prepared:
        shape = prepared.inputs[0].dimensions
        output = prepared.execute([photograph(image, shape, np.dtype(np.uint8))])[0]
    assert label in labels[int(output.argmax())]
