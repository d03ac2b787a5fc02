"""Padding scheme and strides, which convolutions and pooling have in common; no operator of its own."""

from tflite import Padding

from nnhal.tflite.call import Call
from nnhal.tflite.errors import TfliteError

_SCHEMES = {Padding.SAME: 1, Padding.VALID: 2}
"""TFLite's padding to NNAPI's implicit padding scheme."""


def padding_and_strides(call: Call) -> list[int]:
    """Operands of the padding scheme, the stride in width and that in height."""
    padding = call.option("Padding")
    if padding not in _SCHEMES:
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    return [call.int32(_SCHEMES[padding]), call.int32(call.option("StrideW")), call.int32(call.option("StrideH"))]
