"""MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN."""

from driver.backends.litert.lowering import Lowering, converter
from driver.operations.reduction import axes_of
from nnhal.types import OperationType

_OPERATORS = {
    OperationType.MEAN: "MEAN",
    OperationType.REDUCE_ALL: "REDUCE_ALL",
    OperationType.REDUCE_ANY: "REDUCE_ANY",
    OperationType.REDUCE_MAX: "REDUCE_MAX",
    OperationType.REDUCE_MIN: "REDUCE_MIN",
    OperationType.REDUCE_PROD: "REDUCE_PROD",
    OperationType.REDUCE_SUM: "SUM",
}
_ARGUMENTS = {OperationType.ARGMAX: ("ARG_MAX", "ArgMaxOptions"), OperationType.ARGMIN: ("ARG_MIN", "ArgMinOptions")}
_INT32 = 2
"""TensorType.INT32."""


@converter(*_OPERATORS)
def reduction(lower: Lowering) -> None:
    """Reduced dimensions are kept as 1, and dropped by a new shape where NNAPI drops them."""
    shape = lower.shape("input")
    axes = axes_of(lower.call, len(shape))
    kept = tuple(1 if i in axes else length for i, length in enumerate(shape))
    out = lower.reshaped_output(kept, like=lower.spec("input"))
    operator = _OPERATORS[OperationType(lower.call.view.type)]
    lower.emit(operator, [lower.input("input"), lower.constant(axes)], [out], "ReducerOptions", keepDims=True)


@converter(*_ARGUMENTS)
def argument(lower: Lowering) -> None:
    """Of equal values both take the first."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    operator, options = _ARGUMENTS[OperationType(lower.call.view.type)]
    out = lower.reshaped_output((*shape[:axis], *shape[axis + 1 :]))
    lower.emit(operator, [lower.input("input"), lower.constant(axis)], [out], options, outputType=_INT32)
