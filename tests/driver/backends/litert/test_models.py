"""The real models on CpuAcc: wholly, and with the bits that LiteRT's default interpreter gives."""

import numpy as np
import pytest

from driver.backends import registry
from driver.device import Device
from nnhal.tflite import load
from nnhal.types import AnyArray
from tests.driver.one_operation import execute, prepare
from tests.shared import MODELS, shared


def values(dtype: type[np.generic], shape: AnyArray) -> AnyArray:
    random = np.random.default_rng(7)
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    limits = np.iinfo(np.dtype(dtype).str)
    return random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_engine(name: str) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    path = str(shared(f"models/{name}.tflite"))
    engine = interpreter.Interpreter(model_path=path, num_threads=1)
    engine.allocate_tensors()
    (given,) = engine.get_input_details()
    array = values(given["dtype"], given["shape"])
    engine.set_tensor(given["index"], array)
    engine.invoke()
    outcome = prepare(load(path), Device("test", registry.create(["CpuAcc", "CpuRef"])))
    assert outcome.prepared_model is not None, outcome.reason
    assert {one.backend for one in outcome.prepared_model.placement.operations} == {"CpuAcc"}
    for _ in range(8):  # past the choice of a number of threads
        (found,) = execute(outcome, [array])[1]
        np.testing.assert_array_equal(found, engine.get_tensor(engine.get_output_details()[0]["index"]))
