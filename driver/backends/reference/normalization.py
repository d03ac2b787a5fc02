"""Kernels of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from driver.backends.reference.fixed_point import RANGES, Integers, rescale
from driver.backends.reference.gemmlowp import change, product
from driver.backends.reference.kernel import Floats, floats, is_quantized, kernel, laid_out, narrowed, nhwc
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.L2_NORMALIZATION)
def l2_normalization(call: Call) -> AnyArray:
    """x by the root of the sum of squares along one axis."""
    axis = call.axis(len(call.shape("input")))
    if is_quantized(call, "input"):
        return _quantized_l2(call, axis)
    x = floats(call, "input")
    norm: Floats = np.sqrt(np.square(x).sum(axis=axis, keepdims=True))
    np.maximum(norm, np.float32(1e-6), out=norm)
    return narrowed(call, x / norm)


def _quantized_l2(call: Call, axis: int) -> AnyArray:
    """Stored values of scale 1/128. Only for the signed type's last axis are the 7 bits part of the multiplier."""
    output = call.operand("output")
    difference = call.array("input").astype(np.int64) - call.operand("input").zero_point
    mantissa, exponent = inverse_root(np.square(difference).sum(axis=axis, keepdims=True))
    if output.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED and axis == difference.ndim - 1:
        scaled = rescale(difference, mantissa, exponent + 7)
    else:
        scaled = rescale(difference << 7, mantissa, exponent)
    return np.clip(scaled + output.zero_point, *RANGES[OperandType(output.type)]).astype(DTYPES[output.type])


def inverse_root(value: Integers) -> tuple[Integers, Integers]:
    """1 / sqrt(value) as (Q, e), by Newton's method; 1 counts for 0."""
    shift = np.full_like(value, 11)
    scaled = np.maximum(value, 2)
    while (large := scaled >= 2**29).any():
        scaled = np.where(large, scaled >> 2, scaled)
        shift += large
    # as many pairs of bits to the left as reach 2^27
    pairs = (31 - np.frexp(scaled.astype(np.float64))[1].astype(np.int64)) // 2 - 1
    shift -= pairs
    scaled <<= 2 * pairs
    half = ((scaled >> 1) + 1) >> 1
    x = np.full_like(value, 2**28)
    for _ in range(5):
        cube = change(product(product(x, x), x), 6, 0)
        x = change(product(2**28 + 2**27, x) - product(half, cube), 3, 0)
    mantissa = product(x, 1518500250) << np.maximum(-shift, 0)
    small = value <= 1
    return np.where(small, 2**31 - 1, mantissa), np.where(small, 0, -np.maximum(shift, 0))


@kernel(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(call: Call) -> AnyArray:
    """x * (bias + alpha * sum of squares within the radius)^-beta."""
    x = floats(call, "input")
    axis = call.axis(x.ndim)
    radius = min(call.integer("radius"), x.shape[axis])
    bias, alpha, beta = (np.float32(call.number(name)) for name in ("bias", "alpha", "beta"))
    margins = [(radius, radius) if i == axis else (0, 0) for i in range(x.ndim)]
    squares = np.pad(np.square(x), margins)
    sums: Floats = sliding_window_view(squares, 2 * radius + 1, axis=axis).sum(axis=-1)
    return narrowed(call, x * np.power(bias + alpha * sums, -beta))


@kernel(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(call: Call) -> AnyArray:
    """(x - mean) * gamma / sqrt(variance + epsilon) + beta over the positions of each channel."""
    image = nhwc(call).astype(np.float32, copy=False)
    gamma, beta, epsilon = (np.float32(call.number(name)) for name in ("gamma", "beta", "epsilon"))
    centred = image - image.mean(axis=(1, 2), keepdims=True)
    variance: Floats = np.square(centred).mean(axis=(1, 2), keepdims=True)
    out: Floats = centred * gamma / np.sqrt(variance + epsilon) + beta
    return laid_out(call, narrowed(call, out))
