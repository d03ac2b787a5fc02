"""Builds a model with ModelBuilder, operation by operation, and runs it: an edge detector.

    python examples/build_model.py

The arguments of each operation are listed in docs/operation-arguments.md.
"""

import argparse

import numpy as np

import nnhal
from nnhal import FusedActivationFunc, Operand, OperandType, OperationType
from nnhal_tools.demo import digits

SAME_PADDING, STRIDE = 1, 1
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
SHADES = np.array(list(" .:*#"))


def build_edge_detector(height: int, width: int) -> nnhal.Model:
    """Return a model that computes the steepness of a picture: the norm of its horizontal and vertical gradient."""
    picture = Operand(OperandType.TENSOR_FLOAT32, (1, height, width, 1))
    gradients = Operand(OperandType.TENSOR_FLOAT32, (1, height, width, 2))
    builder = nnhal.ModelBuilder()
    pixels = builder.input(picture.type, picture.dimensions, name="pixels")
    filters = np.stack([SOBEL, SOBEL.T])[..., np.newaxis]  # [2, 3, 3, 1]: output channel, height, width, input channel
    options = (SAME_PADDING, STRIDE, STRIDE, FusedActivationFunc.NONE)  # numbers and arrays become constants
    both = builder.add(OperationType.CONV_2D, pixels, filters, np.zeros(2, np.float32), *options, output=gradients)
    squares = builder.add(OperationType.MUL, both, both, FusedActivationFunc.NONE, output=gradients)
    total = builder.add(OperationType.REDUCE_SUM, squares, [3], True, output=picture)
    builder.output(builder.add(OperationType.SQRT, total, output=picture), name="edges")
    try:
        builder.add(OperationType.ADD, both, 1.0, output=gradients)
    except nnhal.HalError as error:  # each operation is checked when it is added
        print(error)
    return builder.build()


def draw(*pictures: np.ndarray) -> None:
    """Print pictures [1, H, W, 1] with values 0..1 side by side, two characters per pixel."""
    rows = np.concatenate([picture[0, :, :, 0] for picture in pictures], axis=1)
    for row in SHADES[np.rint(rows.clip(0, 1) * (len(SHADES) - 1)).astype(int)]:
        print("".join(shade * 2 for shade in row).rstrip())


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")

images, _ = digits.load_images()
image = digits.scale_pixels(images)[3:4].repeat(2, axis=1).repeat(2, axis=2)
with nnhal.connect(parser.parse_args().target) as device:
    prepared = device.prepare(build_edge_detector(*image.shape[1:3])).result()
    edges = prepared.execute({"pixels": image})["edges"]
    draw(image, edges / edges.max())
