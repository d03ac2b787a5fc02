"""Convolution and pooling in numpy, one position of the output at a time, so that they are easy to verify."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Padding = tuple[int, int, int, int]
"""Padding: rows above and below, columns left and right."""


def windows(image: Floats, size: tuple[int, int], stride: int, padding: Padding, pad_value: float = 0.0) -> Floats:
    """Return all windows of an image [H, W, C], as [rows, columns, height, width, C]."""
    top, bottom, left, right = padding
    padded = np.pad(image, ((top, bottom), (left, right), (0, 0)), constant_values=pad_value)
    rows = (padded.shape[0] - size[0]) // stride + 1
    columns = (padded.shape[1] - size[1]) // stride + 1
    return np.array(
        [
            [padded[r * stride : r * stride + size[0], c * stride : c * stride + size[1]] for c in range(columns)]
            for r in range(rows)
        ]
    )


def convolve(image: Floats, filters: Floats, bias: Floats, stride: int, padding: Padding) -> Floats:
    """Return the convolution of an image [H, W, I] with filters [O, h, w, I], as [rows, columns, O]."""
    patches = windows(image, (filters.shape[1], filters.shape[2]), stride, padding)
    result: Floats = np.einsum("rchwi,ohwi->rco", patches, filters) + bias
    return result


def convolve_depthwise(image: Floats, filters: Floats, bias: Floats, stride: int, padding: Padding) -> Floats:
    """Return the depthwise convolution of an image [H, W, I] with filters [h, w, I * m], as [rows, columns, I * m].

    Output channel k reads input channel k // m.
    """
    multiplier = filters.shape[2] // image.shape[2]
    patches = windows(image, (filters.shape[0], filters.shape[1]), stride, padding).repeat(multiplier, axis=4)
    result: Floats = np.einsum("rchwk,hwk->rck", patches, filters) + bias
    return result


def pool(image: Floats, size: tuple[int, int], stride: int, padding: Padding, reduce: Callable[..., Floats]) -> Floats:
    """Reduce each window of an image [H, W, C] to [rows, columns, C]. `reduce` must ignore NaN, the padding."""
    return reduce(windows(image, size, stride, padding, np.nan), axis=(2, 3))
