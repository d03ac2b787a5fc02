"""Prepares a model from the compilation cache after a restart of the service.

    python examples/warm_start.py

Without an address, each connection below has a service of its own, which ends with it. What remains is the cache, in
~/.cache/nnhal unless $NNHAL_CACHE_DIR names another folder.
"""

import argparse
import time

import numpy as np

import nnhal
from nnhal import FusedActivationFunc, Operand, OperandType, OperationType

LAYERS, SIZE = 16, 512


def build_network() -> nnhal.Model:
    """Return a model with 16 MiB of weights."""
    random = np.random.default_rng(seed=1)
    vector = Operand(OperandType.TENSOR_FLOAT32, (1, SIZE))
    builder = nnhal.ModelBuilder()
    hidden = builder.input(vector.type, vector.dimensions, name="x")
    for _ in range(LAYERS):
        weights = random.normal(0, SIZE**-0.5, (SIZE, SIZE)).astype(np.float32)
        arguments = (hidden, weights, np.zeros(SIZE, np.float32), FusedActivationFunc.RELU)
        hidden = builder.add(OperationType.FULLY_CONNECTED, *arguments, output=vector)
    builder.output(hidden, name="y")
    return builder.build()


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")
target = parser.parse_args().target

model = build_network()
x = np.ones((1, SIZE), np.float32)
results = []
for start in ("first service", "second service"):
    with nnhal.connect(target) as device:
        print(f"{start}: {device.cached(model)}")
        begin = time.perf_counter()
        prepared = device.prepare(model, cache=True).result()
        print(f"    prepared in {(time.perf_counter() - begin) * 1e3:.1f} ms, {prepared.cache}")
        results.append(prepared.execute([x])["y"])
print("the same outputs:", np.array_equal(results[0], results[1]))
