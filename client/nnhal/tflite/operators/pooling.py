"""Windows: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D, and the padding and strides of these and of convolutions."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator, Padding

_SCHEMES = {Padding.SAME: 1, Padding.VALID: 2}
"""NNAPI's implicit padding schemes, by TFLite's padding."""


@converter(BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D, BuiltinOperator.L2_POOL_2D)
def pool(call: OperatorCall) -> None:
    """Convert a pooling operator. The three have the same arguments."""
    window = [call.int32_scalar(call.option("filter_width")), call.int32_scalar(call.option("filter_height"))]
    inputs = [call.input(0), *padding_and_strides(call), *window, call.activation()]
    call.emit(call.counterpart, inputs)


def padding_and_strides(call: OperatorCall) -> list[int]:
    """Return the operands of the padding scheme, the horizontal stride and the vertical stride."""
    padding = call.option("padding")
    if padding not in _SCHEMES:
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    return [
        call.int32_scalar(_SCHEMES[padding]),
        call.int32_scalar(call.option("stride_w")),
        call.int32_scalar(call.option("stride_h")),
    ]
