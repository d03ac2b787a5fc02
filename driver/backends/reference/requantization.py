"""The last step of quantised convolutions and matrix products: from exact sums of products to stored values.

The definition is `rescale`. Nearly all multipliers allow float64 instead, which is several times faster and gives the
same values, not merely close ones. With x = sum * Q / 2^31 * 2^e, r = -e, `rescale` is

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


def requantized(call: Call, sums: Reals, offset: Integers, weights: str) -> AnyArray:
    """Stored values of the output.

    Args:
        call: the run.
        sums: exact integers, channels last.
        offset: to be added to them, one for each channel: the bias, and what belongs to it.
        weights: name of the weights.
    """
    scaling = call.once("scaling", lambda: _scaling(call, weights))
    output = call.operand("output")
    bounds = activation_bounds(output, call.activation())
    rows = sums.reshape(-1, sums.shape[-1])
    out = np.empty(rows.shape, DTYPES[output.type])
    scale = _scaled_reals if scaling.exact else _scaled_integers
    height = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        out[start : start + height] = scale(rows[start : start + height], offset, scaling, output.zero_point, bounds)
    return out.reshape(sums.shape)


def _scaled_reals(
    sums: Reals, offset: Integers, scaling: Scaling, zero_point: int, bounds: tuple[int, int]
) -> AnyArray:
    low, high = bounds
    value = sums + offset.astype(np.float64)
    value *= scaling.factor
    # below the zero point everything is clipped: only then the sign of x decides nothing
    value += scaling.tie if low >= zero_point else np.copysign(scaling.tie, value)
    value += zero_point + 0.5
    np.floor(value, out=value)
    return np.clip(value, low, high, out=value)


def _scaled_integers(
    sums: Reals, offset: Integers, scaling: Scaling, zero_point: int, bounds: tuple[int, int]
) -> AnyArray:
    value = rescale(sums.astype(np.int64) + offset, scaling.mantissa, scaling.exponent)
    return np.clip(value + zero_point, *bounds)
