"""Layouts: values against indexes written out, and every way there and back."""

from itertools import product

import numpy as np
import pytest

from driver.backends.layout import Layout, convert
from nnhal.errors import HalError

N, H, W, C = 2, 3, 2, 5
IMAGE = np.arange(N * H * W * C, dtype=np.int16).reshape(N, H, W, C)


def test_nchw() -> None:
    made = convert(IMAGE, Layout.NHWC, Layout.NCHW)
    assert made.shape == (N, C, H, W) and made.flags.c_contiguous
    for n, h, w, c in np.ndindex(N, H, W, C):
        assert made[n, c, h, w] == IMAGE[n, h, w, c]


def test_packs_of_four_channels() -> None:
    made = convert(IMAGE, Layout.NHWC, Layout.NC4HW4)
    assert made.shape == (N, 2, H, W, 4) and made.flags.c_contiguous
    for n, h, w, c in np.ndindex(N, H, W, 8):
        assert made[n, c // 4, h, w, c % 4] == (IMAGE[n, h, w, c] if c < C else 0)


@pytest.mark.parametrize(("through", "back"), list(product(Layout, Layout)))
def test_there_and_back(through: Layout, back: Layout) -> None:
    there = convert(IMAGE, Layout.NHWC, through)
    on = convert(there, through, back, C)
    np.testing.assert_array_equal(convert(on, back, Layout.NHWC, C), IMAGE)
    assert (on is there) == (through is back)


def test_what_is_no_image() -> None:
    with pytest.raises(HalError, match=r"shape \[3, 2\] has no layout NHWC"):
        convert(np.zeros((3, 2)), Layout.NHWC, Layout.NCHW)
    with pytest.raises(HalError, match="2 packs of 4 channels do not hold 4 channels"):
        convert(np.zeros((1, 2, 1, 1, 4)), Layout.NC4HW4, Layout.NHWC, 4)
