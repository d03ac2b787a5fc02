"""MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN."""

import numpy as np

from driver.backends.litert.lowering import BOOL, FLOAT, Lowering, converter
from driver.operations.call import Shape
from driver.operations.reduction import axes_of
from nnhal.types import OperationType

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
    """Reduced dimensions are kept as 1, and dropped by a new shape where NNAPI drops them."""
    out = lower.reshaped_output(_kept(lower), like=lower.spec("input"))
    _reduce(lower, _OPERATORS[OperationType(lower.call.view.type)], lower.input("input"), out)


@converter(OperationType.REDUCE_PROD)
def product(lower: Lowering) -> None:
    """A zero makes the product 0, also after the others have overflowed: the engine makes NaN of that."""
    x, kept = lower.input("input"), _kept(lower)
    out = lower.reshaped_output(kept, like=lower.spec("input"))
    is_zero, any_zero = lower.temporary(BOOL, lower.shape("input")), lower.temporary(BOOL, kept)
    lower.emit("EQUAL", [x, lower.constant(0, FLOAT)], [is_zero], "EqualOptions")
    _reduce(lower, "REDUCE_ANY", is_zero, any_zero)
    multiplied = lower.like(out)
    _reduce(lower, "REDUCE_PROD", x, multiplied)
    lower.emit("SELECT", [any_zero, lower.constant(np.zeros(kept), FLOAT), multiplied], [out], "SelectOptions")


def _kept(lower: Lowering) -> Shape:
    """The shape of a result whose reduced dimensions stay, as 1."""
    shape = lower.shape("input")
    axes = axes_of(lower.call, len(shape))
    return tuple(1 if i in axes else length for i, length in enumerate(shape))


def _reduce(lower: Lowering, operator: str, x: int, out: int) -> None:
    axes = lower.constant(axes_of(lower.call, len(lower.shape("input"))))
    lower.emit(operator, [x, axes], [out], "ReducerOptions", keepDims=True)


@converter(*_ARGUMENTS)
def argument(lower: Lowering) -> None:
    """Of equal values both take the first."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    operator, options = _ARGUMENTS[OperationType(lower.call.view.type)]
    out = lower.reshaped_output((*shape[:axis], *shape[axis + 1 :]))
    lower.emit(operator, [lower.input("input"), lower.constant(axis)], [out], options, outputType=_INT32)
