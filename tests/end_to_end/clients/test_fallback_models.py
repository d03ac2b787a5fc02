"""Real models on a service without the LiteRT extension, with the fallback: they agree with LiteRT."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nnhal
import nnhal.tflite
from nnhal.types import AnyArray
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import INEXACT_MODELS, shared

STEPS = 3
"""Executions of each model. A model with variables carries them from one to the next."""

CUSTOM = {"selfie_segmentation"}
"""Models with operators that only LiteRT's default kernels have."""


@pytest.fixture(scope="module")
def cpu_ref(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that does not have the LiteRT extension."""
    running = start_service(tmp_path_factory.mktemp("cpu-ref"), "--backends", "CpuRef")
    yield running
    assert stop_service(running) == 0


def example_input(info: Any, rng: np.random.Generator) -> AnyArray:
    """Return a photograph for an input that is an image, and else random numbers."""
    shape, dtype = tuple(info["shape"]), np.dtype(info["dtype"])
    if len(shape) == 4 and shape[3] == 3:
        file = shared(f"models/{rng.choice(['cat', 'grace_hopper'])}.bmp")
        with Image.open(file) as opened:
            pixels = np.asarray(opened.convert("RGB").resize((shape[2], shape[1])), np.float32).reshape(shape)
        return (pixels / 255 if dtype == np.float32 else pixels - (dtype == np.int8) * 128).astype(dtype)
    if dtype.kind == "f":
        return rng.random(shape, np.float32).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


class Engine:
    """LiteRT with one set of kernels. A model without states starts each execution with the initial ones."""

    def __init__(self, path: Path, resolver: Any, keeps_states: bool) -> None:
        module: Any = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
        self._interpreter = module.Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
        self._interpreter.allocate_tensors()
        self._keeps_states = keeps_states
        self.inputs: list[Any] = self._interpreter.get_input_details()

    def run(self, values: list[AnyArray]) -> list[AnyArray]:
        """Return the outputs."""
        if not self._keeps_states:
            self._interpreter.reset_all_variables()
        for info, value in zip(self.inputs, values, strict=True):
            self._interpreter.set_tensor(info["index"], value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(info["index"]) for info in self._interpreter.get_output_details()]


def assert_close(ours: AnyArray, default: AnyArray, reference: AnyArray) -> None:
    """Compare an output with those of LiteRT's default and reference kernels.

    Float outputs are compared relative to their range: in the small elements of detectors, large terms cancel each
    other. LiteRT's own answers may differ by more, and so may ours then.
    """
    if default.dtype == np.int64:
        assert max(np.mean(ours.reshape(each.shape) == each) for each in (default, reference)) >= 0.995
        return
    wide = [array.astype(np.float64).ravel() for array in (ours, default, reference)]
    tolerance = 2e-4 * max(1, np.abs(wide[1]).max()) if default.dtype == np.float32 else 3
    spread = np.abs(wide[1] - wide[2]).max()
    assert min(np.abs(wide[0] - answer).max() for answer in wide[1:]) <= tolerance + spread


@pytest.mark.nightly
def test_every_model_runs(cpu_ref: Service) -> None:
    paths = sorted(shared("models").glob("*.tflite"))
    running = [path for path in paths if path.stem not in INEXACT_MODELS]
    with nnhal.connect(cpu_ref.target) as device:
        divided = [path.stem for path in running if compare(device, path)]
    assert {"int16_conv", "kws_ref_model_float32", "tf2_mobilenet_v2_1.0_224_ptq"} <= set(divided)


def compare(device: nnhal.Device, path: Path) -> bool:
    """Compare a model with LiteRT, and return whether this machine ran a part of it."""
    module: Any = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    resolvers = module.OpResolverType
    rng = np.random.default_rng(5)
    with device.prepare(path, fallback=True).result(120) as prepared:
        default = Engine(path, resolvers.AUTO, bool(prepared.states))
        reference = default if path.stem in CUSTOM else Engine(path, resolvers.BUILTIN_REF, bool(prepared.states))
        run = prepared.stream().step if prepared.states else prepared.execute
        for _ in range(STEPS):
            inputs = [example_input(info, rng) for info in default.inputs]
            outputs = run([value.reshape(info.shape) for value, info in zip(inputs, prepared.inputs, strict=False)])
            for answers in zip(outputs, default.run(inputs), reference.run(inputs), strict=True):
                assert_close(*answers)
        return isinstance(prepared, nnhal.PartitionedModel)
