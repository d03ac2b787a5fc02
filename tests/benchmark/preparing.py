"""What preparing costs through a client, once the service has the model's bytes, against the engine's own load time.

`python -m tests.benchmark.preparing` takes turns: a preparation on an embedded service, from `prepare` to its result,
and LiteRT's interpreter made of the original file with its tensors allocated. Digesting the constants to find that the
service has them is part of it.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack

from ai_edge_litert.interpreter import Interpreter

import nnhal
import nnhal.tflite
from tests.benchmark.figures import Figure, model, show

ADDED_MS = 40.0
"""Milliseconds that a preparation may take beyond the engine's own load time."""
_ROUNDS = 21
_MODELS = {"MobileNet v2": "mobilenet_v2_1.0_224_quant", "DeepLab v3": "deeplabv3_mnv2_dm05_pascal_quant"}


def taken_ms(work: Callable[[], object]) -> tuple[float, object]:
    """How long a piece of work takes, and what it made: letting go of that is not part of it."""
    start = time.perf_counter_ns()
    made = work()
    return (time.perf_counter_ns() - start) / 1e6, made


def measure_model(name: str, device: nnhal.Device) -> Figure:
    """Both sides in turn; the first round uploads."""
    path = model(_MODELS[name])
    source = nnhal.tflite.load(path)

    def load() -> Interpreter:
        interpreter = Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
        return interpreter

    added = []
    with ExitStack() as kept:
        for _ in range(_ROUNDS + 1):
            ours, prepared = taken_ms(lambda: kept.enter_context(device.prepare(source).result(60)))
            theirs, interpreter = taken_ms(load)
            del prepared, interpreter
            added.append(ours - theirs)
    return Figure(f"{name}: prepared through the client, beyond the engine's load", added[1:], "ms", ADDED_MS)


def measure() -> list[Figure]:
    """Every model on one service."""
    with nnhal.connect() as device:
        return [measure_model(name, device) for name in _MODELS]


if __name__ == "__main__":
    show("CpuAcc, preparing", measure)
