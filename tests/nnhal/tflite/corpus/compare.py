"""Comparison of results: integers bit by bit, floats within a relative error of 1e-5."""

import numpy as np

from nnhal.types import AnyArray

_RELATIVE = {"float32": 1e-5, "float64": 1e-5, "float16": 2e-3, "complex64": 1e-5}
_CANCELLATION = {"float32": 1e-6, "float64": 1e-6, "float16": 8e-3, "complex64": 1e-6}
"""Error allowed where terms cancel, in relation to the largest element. CpuRef sums float16 in half precision."""


def difference(actual: AnyArray, expected: AnyArray, steps: int = 0) -> str:
    """Return how two outputs differ, or "" if they are equal within the tolerance.

    Args:
        actual: nnhal's output. NNAPI has no rank 0 and no int64.
        expected: LiteRT's output.
        steps: the allowed difference of integers.
    """
    if actual.shape != (expected.shape or (1,)):
        return f"shape {list(actual.shape)}; expected {list(expected.shape)}"
    if expected.dtype.kind in "fc":
        wrong = ~_close(actual.reshape(expected.shape), expected)
    elif expected.dtype.kind == "b":
        wrong = np.asarray(actual.reshape(expected.shape) != expected)
    else:
        distance = np.abs(actual.reshape(expected.shape).astype(np.int64) - expected.astype(np.int64))
        wrong = np.asarray(distance > steps)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} elements, {actual.reshape(expected.shape)[at]} instead of {expected[at]}"


def _close(actual: AnyArray, expected: AnyArray) -> AnyArray:
    finite = np.abs(expected[np.isfinite(expected)])
    rtol = _RELATIVE[expected.dtype.name]
    atol = _CANCELLATION[expected.dtype.name] * float(finite.max(initial=0))
    return np.asarray(np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True))
