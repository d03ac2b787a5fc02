"""Fixed-point functions as the operation files define them: exponential, reciprocal, logistic, tanh.

Fk is a word with k integer bits and width - 1 - k fraction bits. Arrays are int64 and hold the raw values. A word is an
int32 or an int16. The constants of int16 are those of int32, rounded.
"""

import numpy as np

from nnhal_driver.backends.reference.numerics.fixed_point import Integers, rdiv

_EXP_STEPS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2^n) in F0 of 32 bits, by n."""


def product(a: Integers | int, b: Integers | int, width: int = 32) -> Integers:
    """Return Fa * Fb as F(a + b)."""
    raw: Integers = (np.asarray(a, np.int64) * b + (1 << (width - 2))) >> (width - 1)
    return raw


def saturate(raw: Integers, width: int) -> Integers:
    """Clamp raw values to the range of a word."""
    clamped: Integers = np.clip(raw, -(1 << (width - 1)), (1 << (width - 1)) - 1)
    return clamped


def convert_bits(raw: Integers, from_bits: int, to_bits: int, width: int = 32) -> Integers:
    """Convert Fa to Fb: shift left with saturation, or right with rounding."""
    if from_bits > to_bits:
        return saturate(raw << (from_bits - to_bits), width)
    return rdiv(raw, to_bits - from_bits)


def expneg(a: Integers, bits: int, width: int = 32) -> Integers:
    """Return exp(a) in F0, for a <= 0 in F`bits`."""
    fraction = width - 1 - bits
    quarter = 1 << (fraction - 2)
    remainder = (a & (quarter - 1)) - quarter
    rest = remainder - a
    x = convert_bits(remainder, bits, 0, width) + (1 << (width - 4))
    x2 = product(x, x, width)
    x3 = product(x2, x, width)
    x4 = product(x2, x2, width)
    polynomial = rdiv(product(rdiv(x4, 2) + x3, _constant(715827883, width), width) + x2, 1)
    factor = _constant(1895147668, width)
    y = saturate(factor + product(factor, x + polynomial, width), width)
    for exponent, step in _EXP_STEPS.items():
        if exponent < bits:
            y = np.where(rest & (1 << (fraction + exponent)), product(y, _constant(step, width), width), y)
    if bits > 5:
        y = np.where(a < -(32 << fraction), 0, y)
    return np.where(a == 0, (1 << (width - 1)) - 1, y)


def reciprocal(a: Integers) -> Integers:
    """Return 1 / (1 + a) in F0, for a in [0, 1] in F0 (32 bits)."""
    return convert_bits(_twice_reciprocal(a, 32), 1, 0)


def inverse_root(value: Integers) -> tuple[Integers, Integers]:
    """Return 1 / sqrt(value) as mantissas and exponents for `rescale`, by Newton's method. 1 or less give 1."""
    shift = np.full_like(value, 11)
    scaled = np.maximum(value, 2)
    while (large := scaled >= 2**29).any():
        scaled = np.where(large, scaled >> 2, scaled)
        shift += large
    # shift left by pairs of bits until the value reaches 2^27
    pairs = (31 - np.frexp(scaled.astype(np.float64))[1].astype(np.int64)) // 2 - 1
    shift -= pairs
    half = rdiv((scaled << (2 * pairs)) >> 1, 1)
    x = np.full_like(value, 2**28)
    for _ in range(5):
        cube = convert_bits(product(product(x, x), x), 6, 0)
        x = convert_bits(product(2**28 + 2**27, x) - product(half, cube), 3, 0)
    mantissa = product(x, 1518500250) << np.maximum(-shift, 0)
    small = value <= 1
    return np.where(small, 2**31 - 1, mantissa), np.where(small, 0, -np.maximum(shift, 0))


def logistic(a: Integers, bits: int, width: int = 32) -> Integers:
    """Return 1 / (1 + exp(-a)) in F0, for a in F`bits`."""
    share = convert_bits(_twice_reciprocal(expneg(-np.abs(a), bits, width), width), 1, 0, width)
    out: Integers = np.where(a > 0, share, (1 << (width - 1)) - 1 - share)
    return np.where(a == 0, 1 << (width - 2), out)


def tanh(a: Integers, bits: int, width: int = 32) -> Integers:
    """Return the hyperbolic tangent of `a` in F0, for `a` in F`bits`."""
    # the same raw value with one more integer bit is 2 * a
    one = 1 << (width - 3)
    magnitude = convert_bits(_twice_reciprocal(expneg(-np.abs(a), bits + 1, width), width) - one, 2, 0, width)
    return np.sign(a) * magnitude


def _twice_reciprocal(a: Integers, width: int) -> Integers:
    """Return 2 / (1 + a) in F2, for a in [0, 1] in F0, by Newton's method."""
    half = (a + (1 << (width - 1))) // 2
    x = _constant(1515870810, width) + product(half, -_constant(1010580540, width), width)
    for _ in range(3):
        x = x + convert_bits(product(x, (1 << (width - 3)) - product(half, x, width), width), 4, 2, width)
    return x


def _constant(value: int, width: int) -> int:
    """Convert a positive constant of 32 bits to a word of `width` bits."""
    return value if width == 32 else (value + (1 << (31 - width))) >> (32 - width)
