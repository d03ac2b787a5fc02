"""Operators that LiteRT would compute wrongly without an error: regions with them are refused."""

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import check_kernels, parse
from tests.driver.backends.litert.submodel.checking import refusal
from tests.nnhal.tflite.build import Op, Tensor, build, options, schema


def depthwise(weights: Tensor, bias: Tensor | None = None) -> bytes:
    """Return a depthwise convolution of a float32 image."""
    channels = weights.shape[-1]
    table = options(
        "DepthwiseConv2D", strideW=1, strideH=1, depthMultiplier=1, padding=schema.Padding.SAME, dilationWFactor=1
    )
    bias = bias or Tensor((channels,), data=np.zeros(channels))
    inputs = [Tensor((1, 4, 4, channels)), weights, bias]
    return build(Op("DEPTHWISE_CONV_2D", inputs, [Tensor((1, 4, 4, channels))], table))


def hybrid(scales: int) -> Tensor:
    """Return quantized weights of three channels."""
    values = np.arange(27).reshape(1, 3, 3, 3)
    return Tensor(values.shape, "INT8", values, (0.5,) * scales, (0,) * scales, 3)


def test_hybrid_depthwise_convolution_needs_a_scale_for_each_channel() -> None:
    check_kernels(parse(depthwise(hybrid(3))))
    assert "input 1 has 1 scales; expected one for each of the 3 channels" in refusal(depthwise(hybrid(1)))


def test_depthwise_convolution_that_would_not_end() -> None:
    weights = np.zeros((1, 1, 1, 5000))
    check_kernels(parse(depthwise(Tensor(weights.shape, data=weights))))
    assert "the filter has 5000 channels; expected at most 4832" in refusal(depthwise(Tensor(weights.shape)))


@pytest.mark.parametrize("name", ["MATRIX_DIAG", "MATRIX_SET_DIAG"])
def test_diagonals_of_booleans(name: str) -> None:
    matrix, diagonal = Tensor((2, 2), "BOOL"), Tensor((2,), "BOOL")
    inputs = [diagonal] if name == "MATRIX_DIAG" else [matrix, diagonal]
    assert "the kernel writes out of bounds" in refusal(build(Op(name, inputs, [Tensor((2, 2), "BOOL")])))
