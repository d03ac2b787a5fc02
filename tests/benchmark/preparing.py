"""Cost of a preparation through a client, compared with the engine's own load.

`python -m tests.benchmark.preparing` alternates between a preparation on an embedded service, which has the model's
bytes already, and LiteRT's interpreter, created from the original file with its tensors allocated. The preparation
includes hashing the constants, by which the client learns that the service has them.
"""

from contextlib import ExitStack

import nnhal
import nnhal.tflite
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import elapsed_ms
from tests.benchmark.warm_start import MODELS, load_engine

ADDED_MS = 40.0
"""Milliseconds that a preparation may take in addition to the engine's own load."""
_ROUNDS = 21


def measure_model(name: str, device: nnhal.Device) -> Figure:
    """Return the figure of one model. The first round, which uploads the constants, is left out."""
    path = model_path(MODELS[name])
    source = nnhal.tflite.load(path)
    added = []
    with ExitStack() as stack:
        for _ in range(_ROUNDS + 1):
            own, _prepared = elapsed_ms(lambda: stack.enter_context(device.prepare(source).result(60)))
            engine, _interpreter = elapsed_ms(lambda: load_engine(path))
            added.append(own - engine)
    return Figure(f"{name}: prepared through the client, more than the engine's load", added[1:], "ms", ADDED_MS)


def measure() -> list[Figure]:
    """Return the figures of every model, on one service."""
    with nnhal.connect() as device:
        return [measure_model(name, device) for name in MODELS]


if __name__ == "__main__":
    show("CpuAcc, preparing", measure)
