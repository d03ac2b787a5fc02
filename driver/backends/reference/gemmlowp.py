"""Functions of fixed-point numbers as the operation files give them: exponential, reciprocal, logistic, tanh.

Fk is a word with k integer bits and width - 1 - k fraction bits, held in int64 arrays of raw values. A word is an int32
or an int16; the constants of the narrow one are those of the wide one, rounded.
"""

import numpy as np

from driver.backends.reference.fixed_point import Integers, rdiv

_EXP_STEPS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2^n) in F0 of 32 bits."""


def product(a: Integers | int, b: Integers | int, width: int = 32) -> Integers:
    """Fa * Fb as F(a + b)."""
    out: Integers = (np.asarray(a, np.int64) * b + (1 << (width - 2))) >> (width - 1)
    return out


def saturated(raw: Integers, width: int) -> Integers:
    """Clamped to what a word holds."""
    out: Integers = np.clip(raw, -(1 << (width - 1)), (1 << (width - 1)) - 1)
    return out


def change(raw: Integers, from_bits: int, to_bits: int, width: int = 32) -> Integers:
    """Fa as Fb: shifted left with saturation, or right with rounding."""
    if from_bits > to_bits:
        return saturated(raw << (from_bits - to_bits), width)
    return rdiv(raw, to_bits - from_bits)


def expneg(a: Integers, bits: int, width: int = 32) -> Integers:
    """exp(a) in F0 for a <= 0 in F`bits`."""
    fraction = width - 1 - bits
    quarter = 1 << (fraction - 2)
    remainder = (a & (quarter - 1)) - quarter
    rest = remainder - a
    x = change(remainder, bits, 0, width) + (1 << (width - 4))
    x2 = product(x, x, width)
    x3 = product(x2, x, width)
    x4 = product(x2, x2, width)
    polynomial = rdiv(product(rdiv(x4, 2) + x3, _constant(715827883, width), width) + x2, 1)
    factor = _constant(1895147668, width)
    y = saturated(factor + product(factor, x + polynomial, width), width)
    for exponent, step in _EXP_STEPS.items():
        if exponent < bits:
            y = np.where(rest & (1 << (fraction + exponent)), product(y, _constant(step, width), width), y)
    if bits > 5:
        y = np.where(a < -(32 << fraction), 0, y)
    return np.where(a == 0, (1 << (width - 1)) - 1, y)


def reciprocal(a: Integers) -> Integers:
    """1 / (1 + a) in F0 for a in [0, 1] in F0 (32 bits)."""
    return change(_twice_reciprocal(a, 32), 1, 0)


def logistic(a: Integers, bits: int, width: int = 32) -> Integers:
    """1 / (1 + exp(-a)) in F0 of a in F`bits`."""
    share = change(_twice_reciprocal(expneg(-np.abs(a), bits, width), width), 1, 0, width)
    out: Integers = np.where(a > 0, share, (1 << (width - 1)) - 1 - share)
    return np.where(a == 0, 1 << (width - 2), out)


def tanh(a: Integers, bits: int, width: int = 32) -> Integers:
    """tanh(a) in F0 of a in F`bits`; the same raw value with one more integer bit is 2 a."""
    one = 1 << (width - 3)
    magnitude = change(_twice_reciprocal(expneg(-np.abs(a), bits + 1, width), width) - one, 2, 0, width)
    return np.sign(a) * magnitude


def _twice_reciprocal(a: Integers, width: int) -> Integers:
    """2 / (1 + a) in F2 for a in [0, 1] in F0, by Newton's method."""
    half = (a + (1 << (width - 1))) // 2
    x = _constant(1515870810, width) + product(half, -_constant(1010580540, width), width)
    for _ in range(3):
        x = x + change(product(x, (1 << (width - 3)) - product(half, x, width), width), 4, 2, width)
    return x


def _constant(value: int, width: int) -> int:
    """A positive constant of 32 bits in a word of `width` bits."""
    return value if width == 32 else (value + (1 << (31 - width))) >> (32 - width)
