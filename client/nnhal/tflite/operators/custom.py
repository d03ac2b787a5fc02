"""Custom operators of MediaPipe: Convolution2DTransposeBias."""

from nnhal.tflite.call import OperatorCall, custom_converter
from nnhal.tflite.custom_options import transpose_conv_options
from nnhal.types import OperationType


@custom_converter("Convolution2DTransposeBias")
def transpose_conv_bias(call: OperatorCall) -> None:
    """Convert Convolution2DTransposeBias. Its inputs are input, filter, bias; its padding has NNAPI's numbers."""
    options = transpose_conv_options(call.operator)
    input_, filter_ = call.input(0), call.input(1)
    bias = call.bias(2, input_, filter_, call.known_shape(1, rank=4)[0])
    shape = call.int32_tensor(call.known_output().dimensions)
    numbers = map(call.int32_scalar, (options.padding, options.stride_width, options.stride_height, 0))
    call.emit(OperationType.TRANSPOSE_CONV_2D, [input_, filter_, bias, shape, *numbers, call.bool_scalar(False)])
