"""Chains executions on the service with fences (executeFenced). No tensor travels between the executions.

    python examples/fences.py

Each execution has a fence, which is signalled when it ends. Another execution may wait for it and read its outputs.
"""

import argparse

import numpy as np

import nnhal
from nnhal import FusedActivationFunc, Operand, OperandType, OperationType

SIZE = 256
RANDOM = np.random.default_rng(seed=1)


def build_layer(source: str, target: str) -> nnhal.Model:
    """Return a model of one fully connected layer with random weights."""
    vector = Operand(OperandType.TENSOR_FLOAT32, (1, SIZE))
    builder = nnhal.ModelBuilder()
    inputs = builder.input(vector.type, vector.dimensions, name=source)
    weights = RANDOM.normal(0, SIZE**-0.5, (SIZE, SIZE)).astype(np.float32)
    arguments = (inputs, weights, np.zeros(SIZE, np.float32), FusedActivationFunc.RELU)
    builder.output(builder.add(OperationType.FULLY_CONNECTED, *arguments, output=vector), name=target)
    return builder.build()


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")

x = RANDOM.normal(size=(1, SIZE)).astype(np.float32)
with nnhal.connect(parser.parse_args().target) as device:
    encoder = device.prepare(build_layer("x", "features")).result()
    left = device.prepare(build_layer("features", "left")).result()
    right = device.prepare(build_layer("features", "right")).result()

    go = device.fence()  # a fence of this program; executions have their own
    features = encoder.execute_fenced([x], wait_for=[go])
    branches = [model.execute_fenced([features.outputs[0]], measure_timing=True) for model in (left, right)]
    print("before the signal:", ", ".join(fence.wait(timeout=0).name for fence in (features, *branches)))

    go.signal()
    results = [branch.result(timeout=60)[0] for branch in branches]
    print("after the signal: ", ", ".join(fence.wait(timeout=0).name for fence in (features, *branches)))
    for name, branch in zip(("left", "right"), branches, strict=True):
        print(f"{name}: {branch.timing.fenced.time_on_device_ns / 1000:.1f} µs on the device")

    one_by_one = left.execute([encoder.execute([x])[0]])[0]
    print("the same as without fences:", np.array_equal(results[0], one_by_one))

    failed = encoder.execute_fenced([x], wait_for=[cancelled := device.fence()])
    dependent = left.execute_fenced([failed.outputs[0]])
    cancelled.signal(error=True)  # executions fail if one that they wait for fails
    print("after an error:", failed.wait().name, dependent.wait().name)
