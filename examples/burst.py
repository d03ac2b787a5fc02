"""Runs one model many times, on its own and in a burst, and compares the times.

    python examples/burst.py

If the service is on this machine, tensors go through shared memory. The figures for gRPC show how it would be with a
service on another machine, apart from the latency of the network, which `submit` hides.
"""

import argparse
import timeit
from collections.abc import Callable

import numpy as np

import nnhal
from nnhal.client import Outputs
from nnhal_tools.demo import digits


def measure(name: str, run: Callable[[], list[Outputs]]) -> None:
    """Run all executions a few times. Print the time of one, and how many answers are correct."""
    answers = np.array([outputs["probabilities"].argmax() for outputs in run()])
    seconds = min(timeit.repeat(run, number=1, repeat=3)) / len(answers)
    print(f"  {name:<13} {seconds * 1e6:6.1f} µs, {np.sum(answers == labels)} of {len(labels)} correct")


def compare(prepared: nnhal.PreparedModel) -> None:
    """Classify all pictures, in each way."""
    measure("execute", lambda: [prepared.execute([image]) for image in images])
    with prepared.burst() as burst:
        measure("burst.execute", lambda: [burst.execute([image]) for image in images])

        # several in progress, completed in order
        measure("burst.submit", lambda: [future.result() for future in [burst.submit([image]) for image in images]])

        # an input that many executions use is sent once, which pays for large ones
        kept = burst.keep(images[0])
        answers = {int(burst.execute([kept])["probabilities"].argmax()) for _ in range(10)}
        print(f"  {'burst.keep':<13} the answer is {answers}, the label {labels[0]}")


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")
target = parser.parse_args().target

pictures, labels = digits.load_images()
images = digits.scale_pixels(pictures)[:200, None]  # one input of shape [1, 8, 8, 1] after another
labels = labels[:200]

with nnhal.connect(target) as device:
    print("shared memory, if the service is on this machine:")
    compare(device.prepare(digits.MODEL).result())
with nnhal.connect(target, transport="grpc") as device:
    print("gRPC:")
    compare(device.prepare(digits.MODEL).result())
