"""Windows: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D, and the padding and strides of these and of convolutions."""

from tflite import BuiltinOperator, Padding

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType

_POOLS = {
    BuiltinOperator.AVERAGE_POOL_2D: OperationType.AVERAGE_POOL_2D,
    BuiltinOperator.MAX_POOL_2D: OperationType.MAX_POOL_2D,
    BuiltinOperator.L2_POOL_2D: OperationType.L2_POOL_2D,
}
_SCHEMES = {Padding.SAME: 1, Padding.VALID: 2}
"""NNAPI's implicit padding schemes, by TFLite's padding."""


@converter(*_POOLS)
def pool(call: OperatorCall) -> None:
    """Convert a pooling operator. The three have the same arguments."""
    window = [call.int32_scalar(call.option("FilterWidth")), call.int32_scalar(call.option("FilterHeight"))]
    inputs = [call.input(0), *padding_and_strides(call), *window, call.activation()]
    call.emit(_POOLS[call.operator.code], inputs)


def padding_and_strides(call: OperatorCall) -> list[int]:
    """Return the operands of the padding scheme, the horizontal stride and the vertical stride."""
    padding = call.option("Padding")
    if padding not in _SCHEMES:
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    return [
        call.int32_scalar(_SCHEMES[padding]),
        call.int32_scalar(call.option("StrideW")),
        call.int32_scalar(call.option("StrideH")),
    ]
