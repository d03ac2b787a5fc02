"""Padding scheme and strides of convolutions and pooling."""

from tflite import Padding

from nnhal.tflite.call import OperatorCall
from nnhal.tflite.errors import TfliteError

_SCHEMES = {Padding.SAME: 1, Padding.VALID: 2}
"""NNAPI's implicit padding schemes, by TFLite's padding."""


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
