"""Real models: the same program with LiteRT and with nnhal."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nnhal import litert
from tests.nnhal.litert.programs import differences
from tests.nnhal.tflite.corpus.compare import difference
from tests.shared import SHARED, shared

litert_interpreter = pytest.importorskip("ai_edge_litert.interpreter")

RUNS = 3
STEPS = {"mobilenet_edgetpu_224_1.0_uint8": 8}
"""Largest differences. This file has no shapes, so that LiteRT divides it among its kernels in another way."""
NAMES = sorted(path.stem for path in (SHARED / "models").glob("*.tflite")) or [""]


def sample(details: dict[str, Any], random: np.random.Generator) -> Any:
    """Return random values for an input."""
    shape, dtype = details["shape"], details["dtype"]
    if dtype == np.float32:
        return random.random(shape, np.float32)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def observe(module: ModuleType, path: Path) -> Iterator[object]:
    """Load a model, read what it tells about itself, and run it."""
    interpreter = module.Interpreter(str(path))
    yield interpreter.get_signature_list(), interpreter._get_ops_details(), interpreter.get_tensor_details()
    interpreter.allocate_tensors()
    yield interpreter.get_input_details(), interpreter.get_output_details()
    random = np.random.default_rng(7)
    for _ in range(RUNS):
        for details in interpreter.get_input_details():
            interpreter.set_tensor(details["index"], sample(details, random))
        interpreter.invoke()
        yield [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]
    for key in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(key)
        yield runner(**{name: sample(each, random) for name, each in runner.get_input_details().items()})


@pytest.mark.parametrize("name", NAMES)
def test_model_runs_as_with_litert(name: str) -> None:
    path = shared(f"models/{name}.tflite")
    expected = list(observe(litert_interpreter, path))
    actual = list(observe(litert, path))
    if name in STEPS:
        for one, other in zip(actual[2:], expected[2:], strict=True):
            assert difference(one[0], other[0], STEPS[name]) == ""  # type: ignore[index]
        expected, actual = expected[:2], actual[:2]
    assert list(differences(expected, actual)) == []
