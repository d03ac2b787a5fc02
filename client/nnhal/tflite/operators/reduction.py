"""Reductions: MEAN, SUM, REDUCE_*, ARG_MAX, ARG_MIN."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType

_REDUCTIONS: dict[int, OperationType] = {
    BuiltinOperator.MEAN: OperationType.MEAN,
    BuiltinOperator.SUM: OperationType.REDUCE_SUM,
    BuiltinOperator.REDUCE_ALL: OperationType.REDUCE_ALL,
    BuiltinOperator.REDUCE_ANY: OperationType.REDUCE_ANY,
    BuiltinOperator.REDUCE_MAX: OperationType.REDUCE_MAX,
    BuiltinOperator.REDUCE_MIN: OperationType.REDUCE_MIN,
    BuiltinOperator.REDUCE_PROD: OperationType.REDUCE_PROD,
}
_ARG_MIN_MAX: dict[int, OperationType] = {
    BuiltinOperator.ARG_MAX: OperationType.ARGMAX,
    BuiltinOperator.ARG_MIN: OperationType.ARGMIN,
}


@converter(*_REDUCTIONS)
def reduce(call: OperatorCall) -> None:
    """Convert a reduction. The axes are a tensor in both formats."""
    type_ = _REDUCTIONS[call.operator.code]
    if axes := _axes(call):
        # unlike that of other reductions, the flag of MEAN is an INT32
        scalar = call.int32_scalar if type_ == OperationType.MEAN else call.bool_scalar
        call.emit(type_, [call.input(0), call.int32_tensor(axes), scalar(call.option("keep_dims", False))])
    else:  # a copy
        call.emit(OperationType.RESHAPE, [call.input(0), call.int32_tensor(call.known_output().dimensions)])


def _axes(call: OperatorCall) -> list[int]:
    """Return the axes in ascending order, each one once. A tensor of rank 0 has none, whatever the file says."""
    rank = len(call.shape(0))
    axes = call.integers(1) if rank else []
    return sorted({call.axis(axis, rank) for axis in axes})


@converter(*_ARG_MIN_MAX)
def arg_min_max(call: OperatorCall) -> None:
    """Convert ARG_MAX and ARG_MIN. The axis, a tensor in TFLite, is a scalar in NNAPI."""
    axis = call.axis(call.value(1), len(call.shape(0)))
    call.emit(_ARG_MIN_MAX[call.operator.code], [call.input(0), call.int32_scalar(axis)])
