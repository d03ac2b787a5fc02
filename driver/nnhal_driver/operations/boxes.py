"""Arrays of boxes, [x1, y1, x2, y2] along the last dimension: values, checks and transformation by deltas."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import OperandType
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.quantization import dequantize_array
from nnhal_driver.operations.shape import require_input_quantization, require_quantization

Floats: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]
Reals: TypeAlias = NDArray[np.floating[Any]]

COORDINATE_SCALE = 0.125
"""Scale of quantized coordinates."""


def real_values(call: OperationCall, name: str) -> Floats:
    """Return an argument as float32, widened or dequantized."""
    operand, value = call.operand(name), call.array(name)
    if operand.scale == 0:
        return value.astype(np.float32, copy=False)
    return dequantize_array(value, operand)


def check_coordinates(call: OperationCall, *inputs: str, output: str | None = None) -> None:
    """Check that quantized coordinates have scale 0.125 and zero point 0.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    for name in inputs if output is None else (*inputs, output):
        if call.operand(name).type in (OperandType.TENSOR_QUANT16_ASYMM, OperandType.TENSOR_QUANT16_SYMM):
            require = require_quantization if name == output else require_input_quantization
            require(call, name, COORDINATE_SCALE, 0)


def check_rows(call: OperationCall, name: str, valid: Mask, rule: str) -> None:
    """Check that all rows of an argument are valid: each element [rows, ..] of a mask says whether it obeys the rule.

    Raises:
        HalError: GENERAL_FAILURE naming the first row that breaks the rule.
    """
    invalid = np.argwhere(~valid)
    call.require(len(invalid) == 0, f"{name} in row {invalid[:1, 0].tolist()}: {rule}")


def check_order(call: OperationCall, name: str, boxes: Reals) -> None:
    """Check that x1 <= x2 and y1 <= y2 in all boxes [rows, .., 4]. NaN breaks the rule.

    Raises:
        HalError: GENERAL_FAILURE naming the first row that breaks the rule.
    """
    ordered = boxes[..., :2] <= boxes[..., 2:]
    check_rows(call, name, ordered, "x1 <= x2 and y1 <= y2 must hold")


@np.errstate(over="ignore", invalid="ignore")
def transform_boxes(boxes: Floats, deltas: Floats, image: Floats) -> Floats:
    """Move and scale boxes by deltas, then clip them to their image.

    Args:
        boxes: [.., 4].
        deltas: [.., 4]: dx, dy relative to the size of the box, dw, dh on a log scale.
        image: [.., 2]: height and width of the image of each box.
    """
    size = boxes[..., 2:] - boxes[..., :2]
    center = (boxes[..., :2] + boxes[..., 2:]) / 2 + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = image[..., ::-1]
    corners = [np.minimum(np.maximum(corner, 0), limit) for corner in (center - half, center + half)]
    return np.concatenate(corners, axis=-1)
