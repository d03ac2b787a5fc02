"""Quantised sums of products: what convolutions and matrix products share.

Sums are worked out in floats, which is exact as long as none can leave the integers that the type holds: float32 up to
2^24, float64 up to 2^53. Stored inputs are multiplied by centred weights. What the input's zero point adds to a sum is
then the same everywhere, and goes with the bias.

How a sum becomes a stored value is defined by `rescale`. Nearly all multipliers allow float64 instead, which is several
times faster and gives the same values, not merely close ones. With x = sum * Q / 2^31 * 2^e and r = -e, `rescale` is

    floor(x + 1/2 + t) for x >= 0, floor(x + 1/2 - t) for x < 0, where t = 2^(-r-1) for r > 0, and else 0

because its second rounding goes away from zero at ties, after the first one has gone up. x has 31 + r bits behind the
point. As long as they and the 9 bits before it that no clipping takes away fit in the 53 of float64, nothing above is
rounded; and where x is larger, rounding keeps its order, so that it is clipped to the same value.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from driver.backends.reference.fixed_point import Integers, activation_bounds, encode, rescale
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray

Reals: TypeAlias = NDArray[np.floating[Any]]

_LARGEST_SHIFT = 53 - 9 - 31
"""Largest r for which float64 is exact."""
_BLOCK = 2**16
"""Elements that are worked on at once: so many float64 stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Multipliers (Q, e) from sum to output: one, or one for each output channel.

    Attributes:
        factor: Q / 2^31 * 2^e.
        tie: t of the module's docstring.
        exact: whether float64 gives what `rescale` does.
    """

    mantissa: Integers
    exponent: Integers
    factor: Reals
    tie: Reals
    exact: bool

    @staticmethod
    def of(multipliers: list[float]) -> "Scaling":
        """The scaling by one multiplier, or by one for each channel."""
        pairs = np.array([encode(multiplier) for multiplier in multipliers], np.int64)
        mantissa, exponent = pairs.T
        factor = np.ldexp(mantissa.astype(np.float64), exponent - 31)
        tie = np.where(exponent < 0, np.ldexp(0.5, exponent), 0.0)
        return Scaling(mantissa, exponent, factor, tie, bool(exponent.min() >= -_LARGEST_SHIFT))


def _scaling(call: Call, weights: str) -> Scaling:
    """Multipliers double(float32(input scale * weight scale)) / double(output scale)."""
    input_ = np.float32(call.operand("input").scale)
    output = float(call.operand("output").scale)
    quant = call.channel_quant(weights)
    scales = (call.operand(weights).scale,) if quant is None else quant.scales
    return Scaling.of([float(input_ * np.float32(scale)) / output for scale in scales])


def exact_dtype(weights: AnyArray, summed: tuple[int, ...]) -> type[np.float32] | type[np.float64]:
    """The narrowest float in which sums of 8-bit values times `weights` over axes are exact in any order."""
    largest = 255 * np.abs(weights.astype(np.int64)).sum(axis=summed).max(initial=0)
    return np.float32 if largest < 2**24 else np.float64


def centred(call: Call, weights: str, summed: tuple[int, ...]) -> Reals:
    """Weights less their zero point, in a float in which sums over the axes `summed` are exact."""
    stored = call.array(weights).astype(np.int32) - call.operand(weights).zero_point
    return stored.astype(exact_dtype(stored, summed))


def folded_bias(call: Call, weights: str, summed: tuple[int, ...]) -> Reals:
    """The bias less the part of the input's zero point, for each output channel: exact integers."""

    def make() -> Reals:
        sums: Reals = centred(call, weights, summed).sum(axis=summed, dtype=np.float64)
        return call.array("bias") - call.operand("input").zero_point * sums

    return call.once("folded bias", make, "bias", weights)


def requantized(call: Call, sums: Reals, bias: AnyArray, weights: str) -> AnyArray:
    """Stored values of the output.

    Args:
        call: the run.
        sums: exact integers, channels last.
        bias: to be added to them, one exact integer for each channel.
        weights: name of the weights.
    """
    scaling = call.once("scaling", lambda: _scaling(call, weights))
    output = call.operand("output")
    bounds = activation_bounds(output, call.activation())
    rows = sums.reshape(-1, sums.shape[-1])
    out = np.empty(rows.shape, DTYPES[output.type])
    height = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        totals = np.add(rows[start : start + height], bias, dtype=np.float64)
        out[start : start + height] = scaled(totals, scaling, output.zero_point, bounds)
    return out.reshape(sums.shape)


def scaled(value: Reals, scaling: Scaling, zero_point: int, bounds: tuple[int, int]) -> AnyArray:
    """Exact integers in float64, scaled, moved to the zero point and clipped to bounds. `value` is overwritten."""
    low, high = bounds
    if not scaling.exact:
        stored = rescale(value.astype(np.int64), scaling.mantissa, scaling.exponent)
        return np.clip(stored + zero_point, low, high)
    value *= scaling.factor
    # where everything below the zero point is clipped, it does not matter how negative ties are rounded
    value += scaling.tie if low >= zero_point else np.copysign(scaling.tie, value)
    value += zero_point + 0.5
    np.floor(value, out=value)
    return value.clip(low, high, out=value)
