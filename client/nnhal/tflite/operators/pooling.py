"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.operators.padding import padding_and_strides
from nnhal.types import OperationType

_POOLS = {
    BuiltinOperator.AVERAGE_POOL_2D: OperationType.AVERAGE_POOL_2D,
    BuiltinOperator.MAX_POOL_2D: OperationType.MAX_POOL_2D,
    BuiltinOperator.L2_POOL_2D: OperationType.L2_POOL_2D,
}


@converter(*_POOLS)
def pool(call: OperatorCall) -> None:
    """Convert a pooling operator. The three have the same arguments."""
    window = [call.int32_scalar(call.option("FilterWidth")), call.int32_scalar(call.option("FilterHeight"))]
    inputs = [call.input(0), *padding_and_strides(call), *window, call.activation()]
    call.emit(_POOLS[call.operator.code], inputs)
