"""Custom operators of MediaPipe: Convolution2DTransposeBias."""

import struct

from nnhal.tflite.call import OperatorCall, custom_converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType

_TRANSPOSE_OPTIONS = struct.Struct("<3i")
"""Padding, horizontal stride and vertical stride, as in TfLiteTransposeConvParams."""


@custom_converter("Convolution2DTransposeBias")
def transpose_conv_bias(call: OperatorCall) -> None:
    """Convert Convolution2DTransposeBias. Its inputs are input, filter, bias; its padding has NNAPI's numbers."""
    if len(call.operator.custom_options) < _TRANSPOSE_OPTIONS.size:
        raise TfliteError(f"has {len(call.operator.custom_options)} bytes of options; expected at least 12")
    padding, width, height = _TRANSPOSE_OPTIONS.unpack_from(call.operator.custom_options)
    if padding not in (1, 2):
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    input_, filter_ = call.input(0), call.input(1)
    bias = call.bias(2, input_, filter_, call.known_shape(1, rank=4)[0])
    shape = call.int32_tensor(call.known_output().dimensions)
    options = [*map(call.int32_scalar, (padding, width, height, 0)), call.bool_scalar(False)]
    call.emit(OperationType.TRANSPOSE_CONV_2D, [input_, filter_, bias, shape, *options])
