"""Fixed-point functions: comparison with real functions, and values that the operation files define."""

import numpy as np
import pytest

from nnhal_driver.backends.reference.numerics.fixed_point import rescale
from nnhal_driver.backends.reference.numerics.gemmlowp import expneg, inverse_root, logistic, tanh

# maximum error in units in the last place, by width: a polynomial of degree 4, three steps of Newton's method
TOLERANCE = {16: 13, 32: 512}


def raw_values(width: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    limit = 1 << (width - 1)
    return np.unique(np.linspace(-limit, limit - 1, 65536).astype(np.int64))


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("bits", [0, 1, 2, 3, 4, 5, 6])
def test_functions_are_near_the_real_ones(width: int, bits: int) -> None:
    raw = raw_values(width)
    real, one = raw / 2.0 ** (width - 1 - bits), 2.0 ** (width - 1)
    negative = raw[raw <= 0]
    cases = [
        (expneg(negative, bits, width), np.exp(real[raw <= 0])),
        (logistic(raw, bits, width), 1 / (1 + np.exp(-real))),
        (tanh(raw, bits, width), np.tanh(real)),
    ]
    for actual, expected in cases:
        assert np.abs(actual - expected * one).max() <= TOLERANCE[width]


@pytest.mark.parametrize("width", [16, 32])
def test_values_at_zero_and_at_the_ends(width: int) -> None:
    top = (1 << (width - 1)) - 1
    raw = np.array([-top - 1, 0, top], np.int64)
    assert expneg(raw[:2], 7, width).tolist() == [0, top]
    assert logistic(raw, 6, width)[1] == (top + 1) // 2
    assert tanh(raw, 6, width).tolist()[1] == 0


def test_exponential_below_minus_32_is_zero() -> None:
    # 6 integer bits: one step is 2^-9; exp(-32) is below the last place, but its product rounds up
    raw = np.array([-32 * 512 - 1, -63 * 512], np.int64)
    assert expneg(raw, 6, 16).tolist() == [0, 0]


def test_symmetry() -> None:
    raw = raw_values(16)[1:]
    np.testing.assert_array_equal(tanh(-raw, 3, 16), -tanh(raw, 3, 16))
    nonzero = raw[raw != 0]
    np.testing.assert_array_equal(logistic(-nonzero, 3, 16), 32767 - logistic(nonzero, 3, 16))


def test_inverse_root_of_every_magnitude() -> None:
    a = np.unique((2.0 ** np.arange(1, 31, 0.25)).astype(np.int64))
    actual = rescale(np.full_like(a, 2**24), *inverse_root(a))
    np.testing.assert_allclose(actual, 2**24 / np.sqrt(a), rtol=2e-6, atol=0.51)
    assert rescale(np.full(3, 2**24), *inverse_root(np.array([-5, 0, 1]))).tolist() == [2**24] * 3
