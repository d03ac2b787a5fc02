"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

import numpy as np

from driver.backends.litert.lowering import FLOAT, Lowering, converter
from driver.backends.litert.operations.padding import PADDINGS, padded, padding_scheme
from driver.operations.geometry import Axis, Window
from driver.operations.pooling import pool_window
from nnhal.types import AnyArray, OperationType

_OPERATORS = {
    OperationType.AVERAGE_POOL_2D: "AVERAGE_POOL_2D",
    OperationType.MAX_POOL_2D: "MAX_POOL_2D",
    OperationType.L2_POOL_2D: "L2_POOL_2D",
}
_LOWEST = {"FLOAT32": -np.inf, "UINT8": 0, "INT8": -128}


@converter(*_OPERATORS)
def pool_2d(lower: Lowering) -> None:
    """Padding that is neither of the engine's schemes is made by an operator, and taken out of averages again."""
    space = pool_window(lower.call)
    operator, scheme = _OPERATORS[OperationType(lower.call.view.type)], padding_scheme(space)
    if scheme is not None:
        _pool(lower, operator, lower.image(), lower.image_output(), space, scheme, lower.call.activation())
    elif operator == "MAX_POOL_2D":
        spec = lower.spec("input")
        image = padded(lower, lower.image(), space, lower.constant(_LOWEST[spec.type], spec))
        _pool(lower, operator, image, lower.image_output(), space, "VALID", lower.call.activation())
    else:
        _averaged(lower, space, root=operator == "L2_POOL_2D")


def _pool(
    lower: Lowering, operator: str, image: int, out: int, space: Window, scheme: str, activation: int = 0
) -> None:
    lower.emit(
        operator,
        [image],
        [out],
        "Pool2DOptions",
        padding=PADDINGS[scheme],
        strideH=space.height.stride,
        strideW=space.width.stride,
        filterHeight=space.height.filter,
        filterWidth=space.width.filter,
        fusedActivationFunction=activation,
    )


def _averaged(lower: Lowering, space: Window, *, root: bool) -> None:
    """The average of real values (or the root of that of their squares) under the part of a window inside the image."""
    image = lower.as_spec(lower.image(), FLOAT)
    if root:
        image = lower.made("MUL", [image, image], "MulOptions")
    out = lower.image_output(like=FLOAT)
    shape = lower.writer.shapes[out]
    average = lower.temporary(FLOAT, shape)
    _pool(lower, "AVERAGE_POOL_2D", padded(lower, image, space), average, space, "VALID")
    inside = np.outer(_inside(space.height), _inside(space.width)).reshape(1, shape[1], shape[2], 1)
    weight = lower.constant(space.height.filter * space.width.filter / inside, FLOAT)
    if root:
        average = lower.made("SQRT", [lower.made("MUL", [average, weight], "MulOptions")])
        weight = lower.constant(1, FLOAT)
    activation = lower.call.activation()
    lower.emit("MUL", [average, weight], [out], "MulOptions", fusedActivationFunction=activation)


def _inside(axis: Axis) -> AnyArray:
    """For each position of a window its cells that lie in the image."""
    first = np.arange(axis.out) * axis.stride - axis.before
    return np.minimum(first + axis.filter, axis.input) - np.maximum(first, 0)
