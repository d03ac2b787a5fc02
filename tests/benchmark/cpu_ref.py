"""Speed of CpuRef: real models through the driver in this process, against LiteRT in the same run.

`python -m tests.benchmark.cpu_ref` alternates between CpuRef with one BLAS thread, and LiteRT's default interpreter
with one thread. It prints both medians, and the ratio of each round with the limit of 12.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from threadpoolctl import threadpool_limits

import nnhal.tflite
from nnhal.types import AnyArray, DataLocation, Memory, Request, RequestArgument, ReturnedPool
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import median_us
from tests.driver.one_operation import prepare

LIMIT = 12.0
"""Limit of CpuRef's time, in multiples of LiteRT's."""
_ROUNDS = 9
_MODELS = {
    "vww_96_float": (60, LIMIT),
    "mobilenet_v2_1.0_224_quant": (4, LIMIT),
    "kws_ref_model": (100, None),
}
"""By name of the model: calls of each side in a round, and the limit, if there is one."""


def litert_call(path: Path) -> tuple[Callable[[], object], AnyArray]:
    """Return a call of LiteRT, and its input."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    (detail,) = interpreter.get_input_details()
    data = np.random.default_rng(7).integers(0, 100, tuple(detail["shape"])).astype(detail["dtype"])
    interpreter.set_tensor(detail["index"], data)
    return interpreter.invoke, data


def cpu_ref_call(path: Path, data: AnyArray) -> Callable[[], object]:
    """Return an execution by the driver on CpuRef, from request to result."""
    prepared = prepare(nnhal.tflite.load(path)).prepared_model
    assert prepared is not None
    argument = RequestArgument(False, DataLocation(0, 0, data.nbytes))
    request = Request((argument,), (RequestArgument(False, DataLocation(1)),), (Memory.of(data), ReturnedPool()))
    return lambda: prepared.execute_synchronously(request)


def figures() -> Iterator[Figure]:
    """Yield the figures of every model. One round more than is counted warms up."""
    for name, (count, limit) in _MODELS.items():
        litert, data = litert_call(model_path(name))
        cpu_ref = cpu_ref_call(model_path(name), data)
        pairs = [(median_us(cpu_ref, count) / 1e3, median_us(litert, count) / 1e3) for _ in range(_ROUNDS + 1)][1:]
        yield Figure(f"{name}: CpuRef", [a for a, _ in pairs], "ms")
        yield Figure(f"{name}: LiteRT", [b for _, b in pairs], "ms")
        yield Figure(f"{name}: CpuRef against LiteRT", [a / b for a, b in pairs], "x", limit)


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):
        show("CpuRef, one thread", figures)
