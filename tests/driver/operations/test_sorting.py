"""Sorting in parts gives the stable order, and stops at a check."""

from collections.abc import Iterator
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhal.errors import HalError, general_failure
from nnhal_driver.operations import sorting
from nnhal_driver.operations.sorting import last_sorted
from nnhal_driver.scheduling.paced_check import proceed


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_SORTED", 3), ("_COMPARED", 4), ("_SAMPLES", 4)):
            patch.setattr(sorting, name, value)
        yield


@given(st.lists(st.sampled_from([-1.0, 0.0, -0.0, 2.0, 3.0, nan, inf]), min_size=1, max_size=40), st.data())
def test_last_of_the_stable_order(values: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    rows = np.array([values, values[::-1]], np.float32)
    expected = np.argsort(rows, axis=-1, kind="stable")[:, len(values) - count :]
    np.testing.assert_array_equal(last_sorted(rows, count, proceed), expected)


@pytest.mark.parametrize("shape", [(5, 2), (1, 30)])
def test_every_check_can_end_it(shape: tuple[int, int]) -> None:
    rows, count = np.random.default_rng(0).integers(0, 9, shape), 0

    def check(last: int = 0) -> None:
        nonlocal count
        count += 1
        if count == last:
            raise general_failure("the end")

    last_sorted(rows, shape[1], check)
    total, count = count, 0
    assert total > 2
    with pytest.raises(HalError, match="the end"):
        last_sorted(rows, shape[1], lambda: check(total))
