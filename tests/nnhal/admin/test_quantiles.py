"""Quantiles of durations by class."""

import pytest

from nnhal.admin.quantiles import quantile


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((10, 0, 0), 0.5, 0.5),
        ((5, 5, 0), 0.5, 1.0),
        ((0, 10, 0), 0.9, 1.9),
        ((0, 0, 10), 0.5, 2.0),
        ((99, 0, 1), 0.99, 1.0),
    ],
)
def test_quantiles_are_linear_within_a_class(counts: tuple[int, ...], share: float, expected: float | None) -> None:
    assert quantile((1.0, 2.0), counts, share) == (None if expected is None else pytest.approx(expected))
