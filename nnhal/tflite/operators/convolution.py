"""Convolutions: CONV_2D (GROUPED_CONV_2D where the filter has fewer channels), DEPTHWISE_CONV_2D, TRANSPOSE_CONV."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operators.padding import padding_and_strides
from nnhal.types import OperationType


@converter(BuiltinOperator.CONV_2D)
def conv_2d(call: Call) -> None:
    """Filters are OHWI in both."""
    input_, filter_ = call.input(0), call.input(1)
    depth, (channels, _, _, filter_depth) = call.shape(0, rank=4)[3], call.shape(1, rank=4)
    window = [input_, filter_, call.bias(2, input_, filter_, channels), *padding_and_strides(call)]
    if depth == filter_depth:
        call.emit(OperationType.CONV_2D, [*window, call.activation(), *_dilation(call)])
    elif depth % filter_depth or _dilation(call):
        raise TfliteError(f"{filter_depth} of {depth} channels in the filter, or dilated groups, have no counterpart")
    else:
        groups = call.int32(depth // filter_depth)
        call.emit(OperationType.GROUPED_CONV_2D, [*window, groups, call.activation(), call.flag(False)])


@converter(BuiltinOperator.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: Call) -> None:
    """Filters are 1HWO in both. As in TFLite itself, the shapes decide the multiplier, not the option."""
    input_, filter_ = call.input(0), call.input(1)
    depth, channels = call.shape(0, rank=4)[3], call.shape(1, rank=4)[3]
    if channels % depth:
        raise TfliteError(f"{channels} channels are not a multiple of the input's {depth}")
    window = [input_, filter_, call.bias(2, input_, filter_, channels), *padding_and_strides(call)]
    multiplier = call.int32(channels // depth)
    call.emit(OperationType.DEPTHWISE_CONV_2D, [*window, multiplier, call.activation(), *_dilation(call)])


@converter(BuiltinOperator.TRANSPOSE_CONV)
def transpose_conv(call: Call) -> None:
    """TFLite's order is output shape, filter, input, bias."""
    shape, filter_, input_ = call.input(0), call.input(1), call.input(2)
    bias = call.bias(3, input_, filter_, call.shape(1, rank=4)[0])
    rest = [*padding_and_strides(call), call.activation(), call.flag(False)]
    call.emit(OperationType.TRANSPOSE_CONV_2D, [input_, filter_, bias, shape, *rest])


def _dilation(call: Call) -> list[int]:
    """Layout (NHWC) and both factors; nothing where nothing is dilated."""
    width, height = call.option("DilationWFactor", 1), call.option("DilationHFactor", 1)
    return [call.flag(False), call.int32(width), call.int32(height)] if (width, height) != (1, 1) else []
