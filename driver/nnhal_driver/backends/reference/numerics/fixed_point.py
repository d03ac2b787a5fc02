"""Fixed-point arithmetic of quantized kernels, exactly as the operation files define it.

The names `encode`, `rescale` and `rdiv` are those of the operation files. Arrays are int64 and hold int32 values, so
that products fit.
"""

from functools import lru_cache
from math import frexp, isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import DTYPES, AnyArray, FusedActivationFunc, Operand, OperandType

Integers: TypeAlias = NDArray[np.int64]

RANGES: dict[int, tuple[int, int]] = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
}
"""Smallest and largest stored value, by operand type."""

_MAX = np.finfo(np.float32).max
FLOAT_BOUNDS: dict[int, tuple[np.float32, np.float32]] = {
    FusedActivationFunc.NONE: (-_MAX, _MAX),
    FusedActivationFunc.RELU: (np.float32(0), _MAX),
    FusedActivationFunc.RELU1: (np.float32(-1), np.float32(1)),
    FusedActivationFunc.RELU6: (np.float32(0), np.float32(6)),
}
"""Smallest and largest real value after a fused activation."""


def round_half_away(value: float) -> int:
    """Round to the nearest integer, ties away from zero."""
    return int(np.trunc(value + np.copysign(0.5, value)))


def encode(multiplier: float) -> tuple[int, int]:
    """Encode a multiplier >= 0 as (Q, e): multiplier = Q / 2^31 * 2^e with 2^30 <= Q < 2^31.

    Raises:
        ArithmeticError: the multiplier is infinite or NaN.
    """
    if not isfinite(multiplier):
        raise ArithmeticError(f"the scales give the multiplier {multiplier}; it must be finite")
    if multiplier == 0:
        return 0, 0
    fraction, exponent = frexp(multiplier)
    mantissa = round_half_away(fraction * 2**31)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)


def rdiv(value: Integers, exponent: int | Integers) -> Integers:
    """Return value / 2^exponent, rounded to nearest, ties away from zero."""
    half = (np.int64(1) << np.asarray(exponent, np.int64)) >> 1
    return (value + half - ((value < 0) & (half > 0))) >> exponent


def rescale(value: Integers, mantissa: int | Integers, exponent: int | Integers) -> Integers:
    """Return value * mantissa / 2^31 * 2^exponent, rounded twice as the reference does: ties up, then away from zero.

    `mantissa` and `exponent` may be arrays along the last axis (per channel).
    """
    left: int | Integers = np.maximum(np.asarray(exponent, np.int64), 0)
    return rdiv((((value << left) * mantissa) + (1 << 30)) >> 31, left - exponent)


@lru_cache(maxsize=4096)
def activation_bounds(operand: Operand, activation: int) -> tuple[int, int]:
    """Return the smallest and largest stored value of an output after its fused activation."""
    low, high = RANGES[operand.type]

    def stored(real: np.float32) -> int:
        with np.errstate(over="ignore"):
            # the largest float stands for no bound, also where the scale makes larger values
            steps = float(real if abs(real) == _MAX else real / np.float32(operand.scale))
        return operand.zero_point + round_half_away(min(max(steps, -(2.0**31)), 2.0**31))

    lower, upper = map(stored, FLOAT_BOUNDS[activation])
    return max(low, lower), min(high, upper)


def to_stored(value: Integers, output: Operand, activation: int = FusedActivationFunc.NONE) -> AnyArray:
    """Clamp whole numbers to the stored values of an output with this fused activation, and to its type."""
    return np.clip(value, *activation_bounds(output, activation)).astype(DTYPES[output.type])
