"""What the driver adds to the engine: executions on CpuAcc in this process against LiteRT's bare interpreter.

`python -m tests.benchmark.cpu_acc` takes turns, round by round. Both sides get the input's bytes and give the output's:
the bare one through views of the engine's tensors, ours through a request that is made once, from validation to result.
It lies below `tests` because it uses the driver, which no tool may.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import nnhal.tflite
from driver.backends import registry
from driver.device import Device
from nnhal.types import AnyArray, DataLocation, Memory, Request, RequestArgument, ReturnedPool
from tests.benchmark.figures import Figure, model, show
from tests.driver.one_operation import prepare

ADDED_US = 40.0
"""Microseconds that the driver may add to a call on KWS."""
_ROUNDS = 21
_CALLS = 200


def bare(path: Path) -> tuple[Callable[[], AnyArray], AnyArray]:
    """One call of LiteRT, and the input that it is given."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    data = np.random.default_rng(7).integers(0, 100, tuple(given["shape"])).astype(given["dtype"])
    source, target = interpreter.tensor(given["index"]), interpreter.tensor(made["index"])

    def call() -> AnyArray:
        source()[...] = data
        interpreter.invoke()
        found: AnyArray = target().copy()
        return found

    return call, data


def ours(path: Path, data: AnyArray) -> Callable[[], object]:
    """One execution by the driver, from request to result."""
    prepared = prepare(nnhal.tflite.load(path), Device("bench", registry.create(["CpuAcc", "CpuRef"]))).prepared_model
    assert prepared is not None
    given = RequestArgument(False, DataLocation(0, 0, data.nbytes))
    pools = (Memory.of(data.tobytes()), ReturnedPool())
    request = Request((given,), (RequestArgument(False, DataLocation(1)),), pools)
    return lambda: prepared.execute_synchronously(request)


def median_us(call: Callable[[], object]) -> float:
    """Median of calls one after the other."""
    taken = []
    for _ in range(_CALLS):
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1e3


def measure() -> list[Figure]:
    """Both sides in turn; a round before the first warms up."""
    theirs, data = bare(model("kws_ref_model"))
    call = ours(model("kws_ref_model"), data)
    pairs = [(median_us(call), median_us(theirs)) for _ in range(_ROUNDS + 1)][1:]
    return [Figure("KWS: added by the driver to the bare interpreter", [a - b for a, b in pairs], "us", ADDED_US)]


if __name__ == "__main__":
    show("CpuAcc, one call", measure)
