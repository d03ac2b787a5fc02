"""Time that the driver adds to the engine: executions on CpuAcc in this process, against LiteRT's interpreter alone.

`python -m tests.benchmark.cpu_acc` alternates between the two. Both take the bytes of an input and return those of the
output: the interpreter through views of its tensors, the driver through a request that is created once, from validation
to result.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import nnhal.tflite
from nnhal.types import AnyArray, DataLocation, Memory, Request, RequestArgument, ReturnedPool
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import median_us
from tests.driver.one_operation import prepare

ADDED_US = 40.0
"""Microseconds that the driver may add to a call on KWS."""
_ROUNDS = 21
_CALLS = 200


def engine_call(path: Path) -> tuple[Callable[[], AnyArray], AnyArray]:
    """Return a call of LiteRT, and its input."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    (input_,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    data = np.random.default_rng(7).integers(0, 100, tuple(input_["shape"])).astype(input_["dtype"])
    source, target = interpreter.tensor(input_["index"]), interpreter.tensor(output["index"])

    def call() -> AnyArray:
        source()[...] = data
        interpreter.invoke()
        copy: AnyArray = target().copy()
        return copy

    return call, data


def driver_call(path: Path, data: AnyArray) -> Callable[[], object]:
    """Return an execution by the driver, from request to result."""
    prepared = prepare(nnhal.tflite.load(path), Device("bench", registry.create(["CpuAcc", "CpuRef"]))).prepared_model
    assert prepared is not None
    argument = RequestArgument(False, DataLocation(0, 0, data.nbytes))
    pools = (Memory.of(data.tobytes()), ReturnedPool())
    request = Request((argument,), (RequestArgument(False, DataLocation(1)),), pools)
    return lambda: prepared.execute_synchronously(request)


def measure() -> list[Figure]:
    """Return the added time of each round. One more round warms up."""
    engine, data = engine_call(model_path("kws_ref_model"))
    driver = driver_call(model_path("kws_ref_model"), data)
    pairs = [(median_us(driver, _CALLS), median_us(engine, _CALLS)) for _ in range(_ROUNDS + 1)][1:]
    return [Figure("KWS: added by the driver to the interpreter alone", [a - b for a, b in pairs], "us", ADDED_US)]


if __name__ == "__main__":
    show("CpuAcc, one call", measure)
