"""Functions of fixed-point numbers as the operation files give them: exponential and reciprocal.

Fk is an int32 with k integer and 31 - k fraction bits, held in int64 arrays of raw values.
"""

import numpy as np

from driver.backends.reference.fixed_point import Integers, rdiv

_INT32 = (-(2**31), 2**31 - 1)
_EXP_STEPS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2^n) in F0."""


def product(a: Integers | int, b: Integers | int) -> Integers:
    """Fa * Fb as F(a + b)."""
    out: Integers = (np.asarray(a, np.int64) * b + (1 << 30)) >> 31
    return out


def change(raw: Integers, from_bits: int, to_bits: int) -> Integers:
    """Fa as Fb: shifted left with saturation, or right with rounding."""
    if from_bits > to_bits:
        shifted: Integers = np.clip(raw << (from_bits - to_bits), *_INT32)
        return shifted
    return rdiv(raw, to_bits - from_bits)


def expneg(a: Integers, bits: int) -> Integers:
    """exp(a) in F0 for a <= 0 in F`bits`."""
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    remainder = (a & (quarter - 1)) - quarter
    rest = remainder - a
    x = change(remainder, bits, 0) + 2**28
    x2 = product(x, x)
    x3 = product(x2, x)
    x4 = product(x2, x2)
    polynomial = rdiv(product(rdiv(x4, 2) + x3, 715827883) + x2, 1)
    y = 1895147668 + product(1895147668, x + polynomial)
    for exponent, step in _EXP_STEPS.items():
        if exponent < bits:
            y = np.where(rest & (1 << (fraction + exponent)), product(y, step), y)
    return np.where(a == 0, 2**31 - 1, y)


def reciprocal(a: Integers) -> Integers:
    """1 / (1 + a) in F0 for a in [0, 1] in F0, by Newton's method."""
    half = (a + 2**31) // 2
    x = 1515870810 + product(half, -1010580540)
    for _ in range(3):
        x = x + change(product(x, 2**29 - product(half, x)), 4, 2)
    return change(x, 1, 0)
