"""Cost of a preparation through a client, compared with the engine's own load.

`python -m tests.benchmark.preparing` alternates between a preparation on an embedded service, which has the model's
bytes already, and LiteRT's interpreter, created from the original file with its tensors allocated. The preparation
includes hashing the constants, by which the client learns that the service has them.
"""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import nnhal
import nnhal.tflite
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import elapsed_ms
from tests.benchmark.warm_start import MODELS, load_engine
from tests.nnhal.tflite.build import Op, Tensor, build, options

ADDED_MS = 40.0
"""Milliseconds that a preparation may take in addition to the engine's own load."""
_OPERATIONS = 1000
_LARGE_ADDED_MS = 300.0
"""The same for a model of `_OPERATIONS` operations."""
_ROUNDS = 21


def measure_model(name: str, path: Path, limit_ms: float, device: nnhal.Device) -> Figure:
    """Return the figure of one model. The first round, which uploads the constants, is left out."""
    source = nnhal.tflite.load(path)
    added = []
    with ExitStack() as stack:
        for _ in range(_ROUNDS + 1):
            own, _prepared = elapsed_ms(lambda: stack.enter_context(device.prepare(source).result(60)))
            engine, _interpreter = elapsed_ms(lambda: load_engine(path))
            added.append(own - engine)
    return Figure(f"{name}: prepared through the client, more than the engine's load", added[1:], "ms", limit_ms)


def write_large_model(path: Path) -> None:
    """Write a chain of additions and TANH."""
    tensor, weights = Tensor((1, 64)), Tensor((1, 64), data=np.linspace(-1, 1, 64))
    operators = []
    for _ in range(_OPERATIONS // 2):
        total, bounded = Tensor((1, 64)), Tensor((1, 64))
        operators.append(Op("ADD", [tensor, weights], [total], options("Add")))
        operators.append(Op("TANH", [total], [bounded]))
        tensor = bounded
    path.write_bytes(build(*operators))


def measure() -> list[Figure]:
    """Return the figures of every model, on one service."""
    with nnhal.connect() as device, TemporaryDirectory() as folder:
        figures = [measure_model(name, model_path(file), ADDED_MS, device) for name, file in MODELS.items()]
        large = Path(folder, "large.tflite")
        write_large_model(large)
        return [*figures, measure_model(f"{_OPERATIONS} operations", large, _LARGE_ADDED_MS, device)]


if __name__ == "__main__":
    show("CpuAcc, preparing", measure)
