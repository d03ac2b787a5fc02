"""Runs one execution many times. The service checks it once, and its inputs are changed in place.

    python examples/reusable_execution.py

The model compares one picture with a collection of pictures, which stays on the service.
"""

import argparse

import numpy as np

import nnhal
from nnhal import FusedActivationFunc, Operand, OperandType, OperationType
from nnhal_tools.demo import digits


def build_comparison(pictures: int) -> nnhal.Model:
    """Return a model that computes the distance of one picture from each of a collection."""
    one = Operand(OperandType.TENSOR_FLOAT32, (1, 64))
    all_ = Operand(OperandType.TENSOR_FLOAT32, (pictures, 64))
    builder = nnhal.ModelBuilder()
    collection = builder.input(all_.type, all_.dimensions, name="collection")
    picture = builder.input(one.type, one.dimensions, name="picture")
    difference = builder.add(OperationType.SUB, collection, picture, FusedActivationFunc.NONE, output=all_)
    square = builder.add(OperationType.MUL, difference, difference, FusedActivationFunc.NONE, output=all_)
    sums = Operand(OperandType.TENSOR_FLOAT32, (pictures,))
    builder.output(builder.add(OperationType.REDUCE_SUM, square, [1], False, output=sums), name="distances")
    return builder.build()


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")

pictures, labels = digits.load_images()
pixels = digits.scale_pixels(pictures).reshape(-1, 1, 64)
collection, collection_labels = pixels[20:, 0], labels[20:]

with nnhal.connect(parser.parse_args().target) as device:
    prepared = device.prepare(build_comparison(len(collection))).result()
    inputs = {"collection": collection, "picture": pixels[0]}
    with prepared.reusable(inputs, measure_timing=True) as execution:  # both inputs are sent once
        times = []
        for picture, label in zip(pixels[:10], labels, strict=False):
            execution.write({"picture": picture})  # only this one is sent again
            outputs = execution.run()
            times.append(outputs.timing.time_on_device_ns)
            nearest = int(outputs["distances"].argmin())
            print(f"a {label} is most similar to a {collection_labels[nearest]}")
    print(f"{np.median(times) / 1000:.1f} µs on the device")
