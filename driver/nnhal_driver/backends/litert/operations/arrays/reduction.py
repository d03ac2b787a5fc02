"""Converters of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN."""

import numpy as np

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import BOOL, FLOAT, Lowering, converter
from nnhal_driver.operations.arrays.reduction import reduction_axes
from nnhal_driver.operations.call import Shape

_OPERATORS = {
    OperationType.MEAN: "MEAN",
    OperationType.REDUCE_ALL: "REDUCE_ALL",
    OperationType.REDUCE_ANY: "REDUCE_ANY",
    OperationType.REDUCE_MAX: "REDUCE_MAX",
    OperationType.REDUCE_MIN: "REDUCE_MIN",
    OperationType.REDUCE_SUM: "SUM",
}
_ARGUMENTS = {OperationType.ARGMAX: ("ARG_MAX", "ArgMaxOptions"), OperationType.ARGMIN: ("ARG_MIN", "ArgMinOptions")}
_INT32 = 2
"""TensorType.INT32."""


@converter(*_OPERATORS)
def reduction(lower: Lowering) -> None:
    """Keep reduced dimensions as 1, then reshape if NNAPI drops them."""
    out = lower.reshaped_output(_kept_dims_shape(lower), like=lower.spec("input"))
    _reduce(lower, _OPERATORS[OperationType(lower.call.view.type)], lower.input("input"), out)


@converter(OperationType.REDUCE_PROD)
def product(lower: Lowering) -> None:
    """Make the product 0 if an element is 0. The engine alone gives NaN if the other elements overflow."""
    x, shape = lower.input("input"), _kept_dims_shape(lower)
    out = lower.reshaped_output(shape, like=lower.spec("input"))
    is_zero, any_zero = (lower.writer.tensor(BOOL, s) for s in (lower.shape("input"), shape))
    lower.emit("EQUAL", [x, lower.constant(0, FLOAT)], [is_zero], "EqualOptions")
    _reduce(lower, "REDUCE_ANY", is_zero, any_zero)
    products = lower.like(out)
    _reduce(lower, "REDUCE_PROD", x, products)
    lower.emit("SELECT", [any_zero, lower.constant(np.zeros(shape), FLOAT), products], [out], "SelectOptions")


def _kept_dims_shape(lower: Lowering) -> Shape:
    """Return the shape of the result if reduced dimensions are kept as 1."""
    shape = lower.shape("input")
    axes = reduction_axes(lower.call, len(shape))
    return tuple(1 if i in axes else length for i, length in enumerate(shape))


def _reduce(lower: Lowering, operator: str, x: int, out: int) -> None:
    axes = lower.constant(reduction_axes(lower.call, len(lower.shape("input"))))
    lower.emit(operator, [x, axes], [out], "ReducerOptions", keep_dims=True)


@converter(*_ARGUMENTS)
def argument(lower: Lowering) -> None:
    """Emit the engine's operator. Both take the first of equal values."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    operator, options = _ARGUMENTS[OperationType(lower.call.view.type)]
    out = lower.reshaped_output((*shape[:axis], *shape[axis + 1 :]))
    lower.emit(operator, [lower.input("input"), lower.constant(axis)], [out], options, output_type=_INT32)
