"""Real models run entirely on CpuAcc and give the same bits as LiteRT's default interpreter."""

import numpy as np
import pytest

from nnhal.tflite import load
from nnhal.types import AnyArray
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.driver.one_operation import execute, prepare
from tests.shared import MODELS, shared


def random_values(dtype: type[np.generic], shape: AnyArray) -> AnyArray:
    random = np.random.default_rng(7)
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    limits = np.iinfo(np.dtype(dtype).str)
    return random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_those_of_the_engine(name: str) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    path = str(shared(f"models/{name}.tflite"))
    engine = interpreter.Interpreter(model_path=path, num_threads=1)
    engine.allocate_tensors()
    (details,) = engine.get_input_details()
    array = random_values(details["dtype"], details["shape"])
    engine.set_tensor(details["index"], array)
    engine.invoke()
    outcome = prepare(load(path), Device("test", registry.create(["CpuAcc", "CpuRef"])))
    assert outcome.prepared_model is not None, outcome.reason
    assert {operation.backend for operation in outcome.prepared_model.placement.operations} == {"CpuAcc"}
    for _ in range(12):  # until the number of threads is chosen
        (actual,) = execute(outcome, [array])[1]
        np.testing.assert_array_equal(actual, engine.get_tensor(engine.get_output_details()[0]["index"]))
