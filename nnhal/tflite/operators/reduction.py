"""Reductions: MEAN, SUM, REDUCE_*, ARG_MAX, ARG_MIN."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.types import OperationType

_REDUCTIONS = {
    BuiltinOperator.SUM: OperationType.REDUCE_SUM,
    BuiltinOperator.REDUCE_ALL: OperationType.REDUCE_ALL,
    BuiltinOperator.REDUCE_ANY: OperationType.REDUCE_ANY,
    BuiltinOperator.REDUCE_MAX: OperationType.REDUCE_MAX,
    BuiltinOperator.REDUCE_MIN: OperationType.REDUCE_MIN,
    BuiltinOperator.REDUCE_PROD: OperationType.REDUCE_PROD,
}
_ARGUMENTS = {BuiltinOperator.ARG_MAX: OperationType.ARGMAX, BuiltinOperator.ARG_MIN: OperationType.ARGMIN}


@converter(*_REDUCTIONS)
def reduce(call: Call) -> None:
    """The axes are a tensor in both."""
    keep_dims = call.flag(call.option("KeepDims", False))
    call.emit(_REDUCTIONS[call.operator.code], [call.input(0), call.input(1), keep_dims])


@converter(BuiltinOperator.MEAN)
def mean(call: Call) -> None:
    """Its flag, unlike that of the other reductions, is an INT32."""
    keep_dims = call.int32(call.option("KeepDims", False))
    call.emit(OperationType.MEAN, [call.input(0), call.input(1), keep_dims])


@converter(*_ARGUMENTS)
def argument(call: Call) -> None:
    """The axis, a tensor in TFLite, is a scalar; an int64 output becomes TENSOR_INT32, as everywhere."""
    axis = call.axis(call.value(1), len(call.shape(0)))
    call.emit(_ARGUMENTS[call.operator.code], [call.input(0), call.int32(axis)])
