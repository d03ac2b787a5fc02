"""Comparison of a file with LiteRT, on a device with the backends of an embedded service."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.types import AnyArray
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.driver.one_operation import execute, prepare

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

DEVICE = Device("comparison", registry.create(("CpuAcc", "CpuRef")))


def run_litert(data: bytes, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """Return the outputs of LiteRT, after a resize to the shapes of the inputs."""
    engine = interpreter.Interpreter(model_content=data, num_threads=1)
    for detail, value in zip(engine.get_input_details(), inputs, strict=True):
        engine.resize_tensor_input(detail["index"], value.shape)
    engine.allocate_tensors()
    for detail, value in zip(engine.get_input_details(), inputs, strict=True):
        engine.set_tensor(detail["index"], value)
    engine.invoke()
    return [np.array(engine.get_tensor(detail["index"])) for detail in engine.get_output_details()]


def assert_runs_as_in_litert(data: bytes, inputs: Sequence[AnyArray], *, exact: bool = False, **arguments: Any) -> None:
    """Import a file and compare its outputs: `exact` bit for bit, otherwise floats within a tolerance.

    `arguments` are those of `nnhal.tflite.parse`.
    """
    actual = execute(prepare(tflite.parse(data, **arguments), DEVICE), inputs)[1]
    for ours, theirs in zip(actual, run_litert(data, inputs), strict=True):
        expected = theirs.reshape(theirs.shape or (1,))
        if exact or expected.dtype.kind != "f":
            np.testing.assert_array_equal(ours, expected)
        else:
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
