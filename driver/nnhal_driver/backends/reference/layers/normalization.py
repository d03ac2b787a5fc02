"""Kernels of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import (
    Floats,
    as_float32,
    input_as_nhwc,
    is_quantized,
    kernel,
    pad_array,
    tiles,
    to_layout,
    to_output_type,
)
from nnhal_driver.backends.reference.numerics.fixed_point import rescale, to_stored
from nnhal_driver.backends.reference.numerics.gemmlowp import inverse_root
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.L2_NORMALIZATION)
def l2_normalization(call: OperationCall) -> AnyArray:
    """Divide x by the root of the sum of squares along one axis."""
    axis = call.axis(len(call.shape("input")))
    if is_quantized(call, "input"):
        return _quantized_l2(call, axis)
    x = as_float32(call, "input")
    norm: Floats = np.sqrt(np.square(x).sum(axis=axis, keepdims=True))
    np.maximum(norm, np.float32(1e-6), out=norm)
    return to_output_type(call, x / norm)


def _quantized_l2(call: OperationCall, axis: int) -> AnyArray:
    """Return stored values of scale 1/128. Only for the signed type's last axis are the 7 bits in the multiplier."""
    output = call.operand("output")
    difference = call.array("input").astype(np.int64) - call.operand("input").zero_point
    mantissa, exponent = inverse_root(np.square(difference).sum(axis=axis, keepdims=True))
    if output.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED and axis == difference.ndim - 1:
        scaled = rescale(difference, mantissa, exponent + 7)
    else:
        scaled = rescale(difference << 7, mantissa, exponent)
    return to_stored(scaled + output.zero_point, output)


@kernel(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(call: OperationCall) -> AnyArray:
    """Return x * (bias + alpha * sum of squares within the radius)^-beta."""
    x = as_float32(call, "input")
    axis = call.axis(x.ndim)
    radius = min(call.integer("radius"), x.shape[axis])
    bias, alpha, beta = (np.float32(call.number(name)) for name in ("bias", "alpha", "beta"))
    margins = [(radius, radius) if i == axis else (0, 0) for i in range(x.ndim)]
    windows = sliding_window_view(pad_array(np.square(x), margins, 0), 2 * radius + 1, axis=axis)
    sums = np.empty_like(x, order="C")
    for region in tiles(call, x.shape, 2 * radius + 1):
        sums[region] = windows[region].sum(axis=-1)
    return to_output_type(call, x * np.power(bias + alpha * sums, -beta))


@kernel(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(call: OperationCall) -> AnyArray:
    """Return (x - mean) * gamma / sqrt(variance + epsilon) + beta, over the positions of each channel."""
    image = input_as_nhwc(call).astype(np.float32, copy=False)
    gamma, beta, epsilon = (np.float32(call.number(name)) for name in ("gamma", "beta", "epsilon"))
    centered = image - image.mean(axis=(1, 2), keepdims=True)
    variance: Floats = np.square(centered).mean(axis=(1, 2), keepdims=True)
    normalized: Floats = centered * gamma / np.sqrt(variance + epsilon) + beta
    return to_layout(call, to_output_type(call, normalized))
