"""Convolutions: CONV_2D (GROUPED_CONV_2D if the filter has fewer channels), DEPTHWISE_CONV_2D, TRANSPOSE_CONV.

The custom operator Convolution2DTransposeBias is one of MediaPipe.
"""

from nnhal.tflite.call import OperatorCall, converter, custom_converter
from nnhal.tflite.custom_options import window_options
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operators.pooling import padding_and_strides
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType


@converter(BuiltinOperator.CONV_2D)
def conv_2d(call: OperatorCall) -> None:
    """Convert CONV_2D. The filter layout is OHWI in both formats."""
    input_, filter_ = call.input(0), call.input(1)
    depth, (channels, _, _, filter_depth) = call.shape(0, rank=4)[3], call.shape(1, rank=4)
    window = [input_, filter_, call.bias(2, input_, filter_, channels), *padding_and_strides(call)]
    if depth == filter_depth:
        call.emit(OperationType.CONV_2D, [*window, call.activation(), *_dilation(call)])
    elif depth % filter_depth or _dilation(call):
        raise TfliteError(f"{filter_depth} of {depth} channels in the filter, or dilated groups, have no counterpart")
    else:
        groups = call.int32_scalar(depth // filter_depth)
        call.emit(OperationType.GROUPED_CONV_2D, [*window, groups, call.activation(), call.bool_scalar(False)])


@converter(BuiltinOperator.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: OperatorCall) -> None:
    """Convert DEPTHWISE_CONV_2D. The filter layout is 1HWO in both formats.

    As in TFLite, the shapes determine the multiplier, not the option.
    """
    input_, filter_ = call.input(0), call.input(1)
    depth, channels = call.shape(0, rank=4)[3], call.shape(1, rank=4)[3]
    if channels % depth:
        raise TfliteError(f"{channels} channels are not a multiple of the input's {depth}")
    window = [input_, filter_, call.bias(2, input_, filter_, channels), *padding_and_strides(call)]
    multiplier = call.int32_scalar(channels // depth)
    call.emit(OperationType.DEPTHWISE_CONV_2D, [*window, multiplier, call.activation(), *_dilation(call)])


@converter(BuiltinOperator.TRANSPOSE_CONV)
def transpose_conv(call: OperatorCall) -> None:
    """Convert TRANSPOSE_CONV. TFLite's order of inputs is output shape, filter, input, bias."""
    shape, filter_, input_ = call.input(0), call.input(1), call.input(2)
    bias = call.bias(3, input_, filter_, call.shape(1, rank=4)[0])
    options = [*padding_and_strides(call), call.activation(), call.bool_scalar(False)]
    call.emit(OperationType.TRANSPOSE_CONV_2D, [input_, filter_, bias, shape, *options])


@custom_converter("Convolution2DTransposeBias")
def transpose_conv_bias(call: OperatorCall) -> None:
    """Convert Convolution2DTransposeBias. Its inputs are input, filter, bias; its padding has NNAPI's numbers."""
    options = window_options(call.operator)
    input_, filter_ = call.input(0), call.input(1)
    bias = call.bias(2, input_, filter_, call.known_shape(1, rank=4)[0])
    shape = call.int32_tensor(call.known_output().dimensions)
    numbers = map(call.int32_scalar, (options.padding, options.stride_width, options.stride_height, 0))
    call.emit(OperationType.TRANSPOSE_CONV_2D, [input_, filter_, bias, shape, *numbers, call.bool_scalar(False)])


def _dilation(call: OperatorCall) -> list[int]:
    """Return the operands of the layout (NHWC) and of both dilation factors, or [] without dilation."""
    width, height = call.option("dilation_w_factor", 1), call.option("dilation_h_factor", 1)
    return (
        [call.bool_scalar(False), call.int32_scalar(width), call.int32_scalar(height)]
        if (width, height) != (1, 1)
        else []
    )
