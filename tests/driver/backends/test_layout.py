"""Layouts: conversions against explicit indexes, and all round trips."""

from itertools import product

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal_driver.backends.layout import Layout, convert

N, H, W, C = 2, 3, 2, 5
IMAGE = np.arange(N * H * W * C, dtype=np.int16).reshape(N, H, W, C)


def test_nchw() -> None:
    converted = convert(IMAGE, Layout.NHWC, Layout.NCHW)
    assert converted.shape == (N, C, H, W) and converted.flags.c_contiguous
    for n, h, w, c in np.ndindex(N, H, W, C):
        assert converted[n, c, h, w] == IMAGE[n, h, w, c]


def test_nc4hw4() -> None:
    converted = convert(IMAGE, Layout.NHWC, Layout.NC4HW4)
    assert converted.shape == (N, 2, H, W, 4) and converted.flags.c_contiguous
    for n, h, w, c in np.ndindex(N, H, W, 8):
        assert converted[n, c // 4, h, w, c % 4] == (IMAGE[n, h, w, c] if c < C else 0)


@pytest.mark.parametrize(("first", "second"), list(product(Layout, Layout)))
def test_round_trip(first: Layout, second: Layout) -> None:
    source = convert(IMAGE, Layout.NHWC, first)
    converted = convert(source, first, second, C)
    np.testing.assert_array_equal(convert(converted, second, Layout.NHWC, C), IMAGE)
    assert (converted is source) == (first is second)


def test_invalid_shapes_are_rejected() -> None:
    with pytest.raises(HalError, match=r"layout NHWC has shape \[3, 2\]; expected rank 4"):
        convert(np.zeros((3, 2)), Layout.NHWC, Layout.NCHW)
    with pytest.raises(HalError, match="2 packs of 4 channels cannot hold 4 channels"):
        convert(np.zeros((1, 2, 1, 1, 4)), Layout.NC4HW4, Layout.NHWC, 4)
