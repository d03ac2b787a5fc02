"""Vectors of convolutions, pooling and dense layers. The scales of quantized ones avoid any rounding."""

import numpy as np

from nnhal_tools.conformance.vectors.builtin import register
from nnhal_tools.conformance.vectors.builtin.reference import convolve, convolve_depthwise, pool
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case

F32, I32 = "TENSOR_FLOAT32", "TENSOR_INT32"
Q8, I8 = "TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED"

SAME, VALID = 1, 2


@register
def conv_float_same() -> Case:
    """Return a CONV_2D with SAME padding of an odd number of pixels, with the larger half at the bottom and right."""
    rng = np.random.default_rng(1)
    image, filters = rng.integers(-4, 5, (4, 4, 2)), rng.integers(-3, 4, (3, 3, 3, 2))
    bias = np.array([0.5, -1, 2])
    graph = CaseGraph()
    x, w, b = graph.input(F32, (1, 4, 4, 2)), graph.constant(F32, filters), graph.constant(F32, bias)
    numbers = graph.int32s(SAME, 2, 2, 0)
    graph.apply("CONV_2D", [x, w, b, *numbers], [graph.output(F32, (1, 2, 2, 3))])
    expected = convolve(image.astype(float), filters.astype(float), bias, 2, (0, 1, 0, 1))
    return make_case("conv_float_same", graph, [image[None]], [expected[None]])


@register
def conv_per_channel() -> Case:
    """Return a CONV_2D of signed bytes with a scale for each output channel, and weights in a pool."""
    rng = np.random.default_rng(2)
    image, filters = rng.integers(-20, 20, (3, 4, 2)), rng.integers(-8, 9, (2, 2, 2, 2))
    bias, scales = np.array([3, -8]), (0.5, 0.25)
    graph = CaseGraph()
    x, w = graph.input(I8, (1, 3, 4, 2), 0.5, 4), graph.per_channel(filters, scales)
    b = graph.constant(I32, bias, pooled=True)
    numbers = graph.int32s(VALID, 1, 1, 0)
    graph.apply("CONV_2D", [x, w, b, *numbers], [graph.output(I8, (1, 2, 3, 2), 0.125, -3)])
    real = filters * np.array(scales)[:, None, None, None]
    expected = convolve((image - 4) * 0.5, real, bias * 0.5 * np.array(scales), 1, (0, 0, 0, 0))
    return make_case("conv_per_channel", graph, [image[None]], [np.clip(expected / 0.125 - 3, -128, 127)[None]])


@register
def depthwise_quant8() -> Case:
    """Return a DEPTHWISE_CONV_2D with explicit padding, which has the zero point, and a multiplier of 2."""
    rng = np.random.default_rng(3)
    image, filters = rng.integers(0, 40, (3, 3, 2)), rng.integers(120, 140, (2, 2, 4))
    bias = np.array([4, 0, -4, 8])
    graph = CaseGraph()
    x = graph.input(Q8, (1, 3, 3, 2), 0.5, 16)
    w, b = graph.constant(Q8, filters[None], 0.5, 128), graph.constant(I32, bias, 0.25)
    numbers = graph.int32s(1, 0, 1, 0, 1, 1, 2, 0)  # left, right, top, bottom; strides; multiplier
    graph.apply("DEPTHWISE_CONV_2D", [x, w, b, *numbers], [graph.output(Q8, (1, 3, 3, 4), 0.25, 128)])
    expected = convolve_depthwise((image - 16) * 0.5, (filters - 128) * 0.5, bias * 0.25, 1, (1, 0, 1, 0))
    return make_case("depthwise_quant8", graph, [image[None]], [np.clip(expected / 0.25 + 128, 0, 255)[None]])


@register
def average_pool_float() -> Case:
    """Return an AVERAGE_POOL_2D with SAME padding, which the average leaves out."""
    image = np.arange(18.0).reshape(3, 3, 2)
    graph = CaseGraph()
    numbers = graph.int32s(SAME, 2, 2, 2, 2, 0)
    graph.apply("AVERAGE_POOL_2D", [graph.input(F32, (1, 3, 3, 2)), *numbers], [graph.output(F32, (1, 2, 2, 2))])
    expected = pool(image, (2, 2), 2, (0, 1, 0, 1), np.nanmean)
    return make_case("average_pool_float", graph, [image[None]], [expected[None]])


@register
def max_pool_quant8() -> Case:
    """Return a MAX_POOL_2D with VALID padding, which leaves out the last row and column."""
    image = np.random.default_rng(4).integers(0, 256, (5, 5, 1))
    graph = CaseGraph()
    numbers = graph.int32s(VALID, 2, 2, 3, 2, 0)  # strides 2, filter 3 wide and 2 high
    x, y = graph.input(Q8, (1, 5, 5, 1), 0.5, 3), graph.output(Q8, (1, 2, 2, 1), 0.5, 3)
    graph.apply("MAX_POOL_2D", [x, *numbers], [y])
    expected = pool(image.astype(float), (2, 3), 2, (0, 0, 0, 0), np.nanmax)
    return make_case("max_pool_quant8", graph, [image[None]], [expected[None]])


@register
def fully_connected_float() -> Case:
    """Return a FULLY_CONNECTED with a batch of two."""
    rng = np.random.default_rng(5)
    x, w = rng.integers(-3, 4, (2, 3)), rng.integers(-3, 4, (4, 3))
    bias = np.array([1, 0, -1, 0.5])
    graph = CaseGraph()
    inputs = [graph.input(F32, x.shape), graph.constant(F32, w), graph.constant(F32, bias), graph.int32(0)]
    graph.apply("FULLY_CONNECTED", inputs, [graph.output(F32, (2, 4))])
    return make_case("fully_connected_float", graph, [x], [x @ w.T + bias])


@register
def fully_connected_int8() -> Case:
    """Return a FULLY_CONNECTED of signed bytes."""
    rng = np.random.default_rng(6)
    x, w, bias = rng.integers(-9, 9, (2, 3)), rng.integers(-9, 9, (2, 3)), np.array([2, -4])
    graph = CaseGraph()
    inputs = [graph.input(I8, x.shape, 0.5, -1), graph.constant(I8, w, 0.5, 2), graph.constant(I32, bias, 0.25)]
    graph.apply("FULLY_CONNECTED", [*inputs, graph.int32(0)], [graph.output(I8, (2, 2), 0.25, 5)])
    real = ((x + 1) * 0.5) @ ((w - 2) * 0.5).T + bias * 0.25
    return make_case("fully_connected_int8", graph, [x], [np.clip(real / 0.25 + 5, -128, 127)])


@register
def network() -> Case:
    """Return a chain of operations with values of unknown shape between them."""
    rng = np.random.default_rng(7)
    image, filters = rng.integers(0, 5, (4, 4, 1)), rng.integers(-2, 3, (2, 3, 3, 1))
    graph = CaseGraph()
    x, w = graph.input(F32, (1, 4, 4, 1)), graph.constant(F32, filters, pooled=True)
    b = graph.constant(F32, np.zeros(2), pooled=True)
    features, rectified, mean = graph.temporary(F32, (0, 0, 0, 0)), graph.temporary(F32), graph.output(F32, (1, 2))
    graph.apply("CONV_2D", [x, w, b, *graph.int32s(VALID, 1, 1, 0)], [features])
    graph.apply("RELU", [features], [rectified])
    graph.apply("MEAN", [rectified, graph.constant(I32, [1, 2]), graph.int32(0)], [mean])
    expected = np.maximum(convolve(image.astype(float), filters.astype(float), np.zeros(2), 1, (0, 0, 0, 0)), 0)
    return make_case("network", graph, [image[None]], [expected.mean(axis=(0, 1))[None]])
