"""Boxes [x1, y1, x2, y2] along the last dimension of an array: their values and checks, and moving them by deltas."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from driver.operations.call import Call
from driver.operations.quantization import dequantized
from nnhal.types import OperandType

Floats: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]
Reals: TypeAlias = NDArray[np.floating[Any]]

EIGHTH = 0.125
"""The scale of quantised coordinates."""


def reals(call: Call, name: str) -> Floats:
    """An argument as float32: widened, or dequantised."""
    operand, value = call.operand(name), call.array(name)
    if operand.scale == 0:
        return value.astype(np.float32, copy=False)
    return dequantized(value, operand)


def check_coordinates(call: Call, *names: str) -> None:
    """Holds that coordinates, where they are quantised, have scale 0.125 and zero point 0.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    for name in names:
        operand = call.operand(name)
        if operand.type in (OperandType.TENSOR_QUANT16_ASYMM, OperandType.TENSOR_QUANT16_SYMM):
            call.require(
                (operand.scale, operand.zero_point) == (EIGHTH, 0),
                f"{name} has scale {operand.scale:g}, zero point {operand.zero_point}; it must have {EIGHTH:g}, 0",
            )


def check_rows(call: Call, name: str, valid: Mask, complaint: str) -> None:
    """Holds what is `valid` [rows, ..] for each row of an argument.

    Raises:
        HalError: GENERAL_FAILURE naming the first row that is not.
    """
    wrong = np.argwhere(~valid)
    call.require(len(wrong) == 0, f"{name} in row {wrong[:1, 0].tolist()}: {complaint}")


def check_order(call: Call, name: str, boxes: Reals) -> None:
    """Holds x1 <= x2 and y1 <= y2 in all boxes [rows, .., 4]; NaN breaks it.

    Raises:
        HalError: GENERAL_FAILURE naming the first row that is not so.
    """
    ordered = boxes[..., :2] <= boxes[..., 2:]
    check_rows(call, name, ordered, "x1 <= x2 and y1 <= y2 must hold")


@np.errstate(over="ignore", invalid="ignore")
def transformed(boxes: Floats, deltas: Floats, image: Floats) -> Floats:
    """Boxes moved and scaled by deltas, then clipped to their image.

    Args:
        boxes: [.., 4].
        deltas: [.., 4]: dx, dy relative to the size of the box, dw, dh on a log scale.
        image: [.., 2]: height and width of the image of each box.
    """
    size = boxes[..., 2:] - boxes[..., :2]
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2 + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = image[..., ::-1]
    corners = [np.minimum(np.maximum(corner, 0), limit) for corner in (centre - half, centre + half)]
    return np.concatenate(corners, axis=-1)
