"""Requantization in float64 gives the same values as the fixed-point definition, also at ties and limits."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnhal_driver.backends.reference.numerics.fixed_point import encode, rescale
from nnhal_driver.backends.reference.numerics.requantization import Scaling, exact_dtype, scale_sums

BOUNDS = [(0, 255), (-128, 127)]
LIMIT = 2**31 - 1


def near_ties(mantissa: int, shift: int) -> list[int]:
    """Return sums next to the ties of the first and of the second rounding, and the largest sums."""
    first = [step << 30 for step in range(-33, 34)]
    second = [(step << (30 + shift)) + (nudge << 30) for step in range(-1025, 1026) for nudge in (-1, 0, 1)]
    around = {edge // mantissa + nudge for edge in first + second for nudge in (-1, 0, 1, 2)}
    return [-LIMIT, *sorted(value for value in around if abs(value) <= LIMIT), LIMIT]


@settings(max_examples=30, deadline=None)
@given(
    shift=st.integers(-2, 14),
    mantissa=st.integers(2**30, 2**31 - 1),
    zero_point=st.integers(0, 255),
    bounds=st.sampled_from(BOUNDS),
    relu=st.booleans(),
)
@example(shift=1, mantissa=2**30, zero_point=0, bounds=BOUNDS[0], relu=False)
@example(shift=13, mantissa=2**31 - 1, zero_point=255, bounds=BOUNDS[0], relu=False)
@example(shift=8, mantissa=2**30, zero_point=128, bounds=BOUNDS[1], relu=False)
@example(shift=8, mantissa=3 << 29, zero_point=100, bounds=BOUNDS[0], relu=True)
def test_scaling_agrees_with_rescale(
    shift: int, mantissa: int, zero_point: int, bounds: tuple[int, int], relu: bool
) -> None:
    low, high = bounds
    zero_point += low
    low = zero_point if relu else low
    multiplier = float(np.ldexp(mantissa, -31 - shift))
    assert encode(multiplier) == (mantissa, -shift)
    scaling = Scaling.of([multiplier])
    assert scaling.exact == (shift <= 13)
    sums = np.array(near_ties(mantissa, max(shift, 0)), np.int64)
    if shift < 0:
        sums = sums[np.abs(sums) < 2**29]  # larger sums overflow the 64 bits of the definition
    expected = np.clip(rescale(sums, mantissa, -shift) + zero_point, low, high)
    actual = scale_sums(sums.astype(np.float64), scaling, zero_point, (low, high))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("shift", "mantissa", "total"),
    [
        (13, 1417326131, 3146501),
        (13, 1254430781, 3555093),
        (14, 1245031309, 7135606),
        (15, 1382874839, 12899559),
        (16, 1277108518, 28045925),
    ],
)
@pytest.mark.parametrize("zero_point", [0, 255])
def test_products_next_to_a_tie(shift: int, mantissa: int, total: int, zero_point: int) -> None:
    # total * mantissa is 1 or 2 away from a tie, a multiple of 2^30. float64 does not represent it from shift 15 on.
    sums = np.array([total, -total])
    expected = np.clip(rescale(sums, mantissa, -shift) + zero_point, 0, 255)
    scaling = Scaling.of([float(np.ldexp(mantissa, -31 - shift))])
    np.testing.assert_array_equal(scale_sums(sums.astype(np.float64), scaling, zero_point, (0, 255)), expected)


def test_each_channel_has_its_own_multiplier() -> None:
    scaling = Scaling.of([0.5, 0.25, 2.0, 0.0])
    sums = np.array([[3, 6, 3, 9], [-3, -6, -3, -9]], np.float64)
    # 1.5 and -1.5 on both first channels: the first has one rounding, up at ties; the second goes away from zero
    assert scale_sums(sums, scaling, 0, (-128, 127)).tolist() == [[2, 2, 6, 0], [-1, -2, -6, 0]]


@pytest.mark.parametrize(("largest", "expected"), [(65794, np.float64), (65793, np.float32)])
def test_sums_fit_the_float(largest: int, expected: type) -> None:
    # 255 * 65793 = 2^24 - 1
    weights = np.array([[largest - 5, -5], [1, 1]])
    assert exact_dtype(weights, (1,)) == expected
