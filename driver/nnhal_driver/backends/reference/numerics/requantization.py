"""Quantized sums of products, for convolutions and matrix products.

Sums are computed in floats. This is exact while all sums are integers of the float type: to 2^24 for
float32, to 2^53 for float64. Stored inputs are multiplied by weights less their zero point. The contribution of the
input's zero point to a sum is then constant, and is folded into the bias.

`rescale` defines how a sum becomes a stored value. For nearly all multipliers, float64 arithmetic gives the same values
and is several times faster. With x = sum * Q / 2^31 * 2^e and r = -e, `rescale` is

    floor(x + 1/2 + t) for x >= 0, floor(x + 1/2 - t) for x < 0, where t = 2^(-r-1) for r > 0, and else 0

because its first rounding takes ties up, and its second takes them away from zero. x has 31 + r fraction bits. If these
and the 9 integer bits that clipping leaves fit in the 53 bits of float64, no step above is rounded. A larger x may be
rounded, but rounding is monotonic, so x is clipped to the same value.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import DTYPES, AnyArray
from nnhal_driver.backends.reference.numerics.fixed_point import Integers, activation_bounds, encode, rescale
from nnhal_driver.operations.call import OperationCall

Reals: TypeAlias = NDArray[np.floating[Any]]

_LARGEST_SHIFT = 53 - 9 - 31
"""Largest r for which float64 is exact."""
_BLOCK = 2**16
"""Elements that are processed at once. As float64 they fit in a core's cache."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Multipliers (Q, e) from sums to stored outputs: one, or one for each output channel.

    Attributes:
        factor: Q / 2^31 * 2^e.
        tie: t of the module's docstring.
        exact: whether float64 arithmetic gives the same values as `rescale`.
    """

    mantissa: Integers
    exponent: Integers
    factor: Reals
    tie: Reals
    exact: bool

    @staticmethod
    def of(multipliers: list[float]) -> "Scaling":
        """Return the scaling by one multiplier, or by one multiplier for each channel."""
        pairs = np.array([encode(multiplier) for multiplier in multipliers], np.int64)
        mantissa, exponent = pairs.T
        factor = np.ldexp(mantissa.astype(np.float64), exponent - 31)
        tie = np.where(exponent < 0, np.ldexp(0.5, exponent), 0.0)
        return Scaling(mantissa, exponent, factor, tie, bool(exponent.min() >= -_LARGEST_SHIFT))


def _scaling(call: OperationCall, weights: str) -> Scaling:
    """Return the scaling by double(float32(input scale * weight scale)) / double(output scale)."""
    input_ = np.float32(call.operand("input").scale)
    output = float(call.operand("output").scale)
    quant = call.channel_quant(weights)
    scales = (call.operand(weights).scale,) if quant is None else quant.scales
    return Scaling.of([float(input_ * np.float32(scale)) / output for scale in scales])


def exact_dtype(weights: AnyArray, summed: tuple[int, ...]) -> type[np.float32] | type[np.float64]:
    """Return the narrowest float type for exact sums of 8-bit values times `weights` over axes, in any order."""
    largest = 255 * np.abs(weights.astype(np.int64)).sum(axis=summed).max(initial=0)
    return np.float32 if largest < 2**24 else np.float64


def center_weights(call: OperationCall, weights: str, summed: tuple[int, ...]) -> Reals:
    """Return weights less their zero point, in a float type in which sums over the axes `summed` are exact."""
    stored = call.array(weights).astype(np.int32) - call.operand(weights).zero_point
    return stored.astype(exact_dtype(stored, summed))


def fold_zero_point(call: OperationCall, weights: str, summed: tuple[int, ...]) -> Reals:
    """Return the bias less the contribution of the input's zero point, for each output channel: exact integers."""

    def folded_bias() -> Reals:
        sums: Reals = center_weights(call, weights, summed).sum(axis=summed, dtype=np.float64)
        return call.array("bias") - call.operand("input").zero_point * sums

    return call.memoize_constant("folded bias", folded_bias, "bias", weights)


def requantize_sums(call: OperationCall, sums: Reals, bias: AnyArray, weights: str) -> AnyArray:
    """Return the stored values of the output for exact integers, channels last, and one integer per channel to add."""
    scaling = call.memoize_constant("scaling", lambda: _scaling(call, weights))
    output = call.operand("output")
    bounds = activation_bounds(output, call.activation())
    rows = sums.reshape(-1, sums.shape[-1])
    out = np.empty(rows.shape, DTYPES[output.type])
    height = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        call.check()
        totals = np.add(rows[start : start + height], bias, dtype=np.float64)
        out[start : start + height] = scale_sums(totals, scaling, output.zero_point, bounds)
    return out.reshape(sums.shape)


def scale_sums(value: Reals, scaling: Scaling, zero_point: int, bounds: tuple[int, int]) -> AnyArray:
    """Scale exact integers in float64, add the zero point and clip to bounds. `value` is overwritten."""
    low, high = bounds
    if not scaling.exact:
        stored = rescale(value.astype(np.int64), scaling.mantissa, scaling.exponent)
        return np.clip(stored + zero_point, low, high)
    value *= scaling.factor
    # if everything below the zero point is clipped, the rounding of negative ties does not matter
    value += scaling.tie if low >= zero_point else np.copysign(scaling.tie, value)
    value += zero_point + 0.5
    np.floor(value, out=value)
    return value.clip(low, high, out=value)
