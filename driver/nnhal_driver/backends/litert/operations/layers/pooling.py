"""Converters of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

import numpy as np

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal_driver.backends.litert.operations.padding import PADDINGS, pad_image, padding_scheme
from nnhal_driver.operations.geometry import Window
from nnhal_driver.operations.layers.pooling import pool_window

_LOWEST = {"FLOAT32": -np.inf, "UINT8": 0, "INT8": -128}


@converter(OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D, OperationType.L2_POOL_2D)
def pool_2d(lower: Lowering) -> None:
    """Emit a pooling operator. If the engine has no such padding, pad by an operator, and correct averages."""
    space = pool_window(lower.call)
    operator, scheme = lower.operation_name, padding_scheme(space)
    if scheme is not None:
        _pool(lower, operator, lower.image_input(), lower.image_output(), space, scheme, lower.call.activation())
    elif operator == "MAX_POOL_2D":
        spec = lower.spec("input")
        image = pad_image(lower, lower.image_input(), space, lower.constant(_LOWEST[spec.type], spec))
        _pool(lower, operator, image, lower.image_output(), space, "VALID", lower.call.activation())
    else:
        _average_with_padding(lower, space, root=operator == "L2_POOL_2D")


def _pool(
    lower: Lowering, operator: str, image: int, out: int, space: Window, scheme: str, activation: int = 0
) -> None:
    lower.emit(
        operator,
        [image],
        [out],
        "Pool2DOptions",
        padding=PADDINGS[scheme],
        stride_h=space.height.stride,
        stride_w=space.width.stride,
        filter_height=space.height.filter,
        filter_width=space.width.filter,
        fused_activation_function=activation,
    )


def _average_with_padding(lower: Lowering, space: Window, *, root: bool) -> None:
    """Emit the average of real values inside the image, or the root of the average of their squares."""
    image = lower.as_spec(lower.image_input(), FLOAT)
    if root:
        image = lower.apply("MUL", [image, image], "MulOptions")
    out = lower.image_output(like=FLOAT)
    average = lower.like(out)
    _pool(lower, "AVERAGE_POOL_2D", pad_image(lower, image, space), average, space, "VALID")
    cells = space.height.filter * space.width.filter
    weight = lower.constant(cells / space.cell_counts()[np.newaxis], FLOAT)
    if root:
        average = lower.apply("SQRT", [lower.apply("MUL", [average, weight], "MulOptions")])
        weight = lower.constant(1, FLOAT)
    activation = lower.call.activation()
    lower.emit("MUL", [average, weight], [out], "MulOptions", fused_activation_function=activation)
