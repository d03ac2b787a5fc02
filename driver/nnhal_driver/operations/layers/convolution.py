"""Shapes of CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D."""

from math import prod

import numpy as np

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import Window, shape_in_layout, sliding_window
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import shape_rule


def filter_window(call: OperationCall) -> Window:
    """Return the window of a convolution, whose filter is [.., height, width, ..] in both layouts."""

    def infer_window() -> Window:
        shape = call.shape("filter")
        call.require(len(shape) == 4, f"filter has rank {len(shape)}; it must be 4")
        return sliding_window(call, shape[1], shape[2])

    return call.share("window", infer_window)


def check_bias_and_activation(call: OperationCall, weights: str, units: int) -> None:
    """Check the activation and the length of a bias, and its scale if the weights have a single scale.

    Raises:
        HalError: GENERAL_FAILURE.
    """
    call.activation()
    bias = call.shape("bias")
    call.require(bias == (units,), f"bias has shape {list(bias)}; it must be [{units}]")
    if call.operand("input").scale == 0 or call.channel_quant(weights) is not None:
        return
    product = float(np.float32(call.operand("input").scale) * np.float32(call.operand(weights).scale))
    scale = call.operand("bias").scale
    call.require(
        abs(product - scale) <= 1e-6 * min(product, scale),
        f"bias has scale {scale:g}; it must be input scale * {weights} scale = {product:g}",
    )


@multiply_adds(OperationType.CONV_2D, OperationType.GROUPED_CONV_2D, of=("output", "filter"))
def filter_multiply_adds(output: Shape, weights: Shape) -> int:
    """Count a sum over one filter for each output. The first dimension of the weights numbers the filters."""
    return prod(output) * prod(weights[1:])


@multiply_adds(OperationType.DEPTHWISE_CONV_2D, of=("output", "filter"))
def window_multiply_adds(output: Shape, weights: Shape) -> int:
    """Count a sum over a window of one channel for each output."""
    return prod(output) * prod(weights[1:3])


@shape_rule(OperationType.CONV_2D)
def conv_2d(call: OperationCall) -> list[Shape]:
    """Return [batches, out_height, out_width, depth_out]."""
    space = filter_window(call)
    depth_out, _, _, depth_in = call.shape("filter")
    call.require(depth_out > 0, "filter has no output channels")
    call.require(depth_in == space.channels, f"filter has {depth_in} input channels, input {space.channels}")
    check_bias_and_activation(call, "filter", depth_out)
    return [shape_in_layout(call, space.output_shape(depth_out))]


@shape_rule(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: OperationCall) -> list[Shape]:
    """Return [batches, out_height, out_width, depth_in * depth_multiplier]."""
    space = filter_window(call)
    first, _, _, depth_out = call.shape("filter")
    multiplier = call.integer("depth_multiplier")
    call.require(first == 1, f"dimension 0 of filter is {first}; it must be 1")
    call.require(multiplier >= 1, f"depth_multiplier is {multiplier}; it must be at least 1")
    call.require(
        depth_out == space.channels * multiplier,
        f"filter has {depth_out} channels; it must have {space.channels} * {multiplier}",
    )
    check_bias_and_activation(call, "filter", depth_out)
    return [shape_in_layout(call, space.output_shape(depth_out))]


@shape_rule(OperationType.GROUPED_CONV_2D, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def grouped_conv_2d(call: OperationCall) -> list[Shape]:
    """Return [batches, out_height, out_width, depth_out]."""
    space = filter_window(call)
    depth_out, _, _, depth_group = call.shape("filter")
    groups = call.integer("num_groups")
    call.require(groups >= 1, f"num_groups is {groups}; it must be at least 1")
    call.require(depth_out % groups == 0, f"filter has {depth_out} output channels, not a multiple of {groups} groups")
    call.require(
        depth_group * groups == space.channels,
        f"filter has {depth_group} input channels for each of {groups} groups, input {space.channels}",
    )
    check_bias_and_activation(call, "filter", depth_out)
    return [shape_in_layout(call, space.output_shape(depth_out))]
