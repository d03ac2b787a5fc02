"""Stable sorting that the check of a run can stop."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nnhal.types import AnyArray

Indices = NDArray[np.int64]
_Test = Callable[[AnyArray], AnyArray]

_SORTED = 2**18
"""Elements that numpy sorts in one call, in less than 100 ms."""
_COMPARED = 2**20
"""Elements that are compared in one call."""
_SAMPLES = 1024
"""Elements whose median is the pivot."""


def last_sorted(rows: AnyArray, count: int, check: Callable[[], None]) -> Indices:
    """Return the last indices of the ascending stable order of each row: [rows, count]. NaN comes last."""
    length = rows.shape[1]
    out = np.empty((len(rows), count), np.int64)
    if length > _SORTED:
        for row, indices in zip(rows, out, strict=True):
            _write_last(row, indices, check)
        return out
    height = max(1, _SORTED // max(1, length))
    for start in range(0, len(rows), height):
        check()
        order = np.argsort(rows[start : start + height], axis=-1, kind="stable")
        out[start : start + height] = order[:, length - count :]
    return out


def _write_last(values: AnyArray, out: Indices, check: Callable[[], None]) -> None:
    """Fill `out` with the last indices of the stable order of values: by quicksort, only where it is needed."""
    chunks = [np.arange(start, min(start + _COMPARED, len(values))) for start in range(0, len(values), _COMPARED)]
    numbers, nans = _split(values, chunks, (lambda v: v == v, lambda v: v != v), check)  # noqa: PLR0124
    pending = [(numbers, False), (nans, True)]
    end = len(out)
    while pending and end:
        check()
        chunks, is_sorted = pending.pop()
        size = sum(map(len, chunks))
        if not is_sorted and size > _SORTED:
            step = 1 + size // _SAMPLES
            sample = np.sort(np.concatenate([values[chunk[::step]] for chunk in chunks]))
            pivot = sample[len(sample) // 2]
            tests = (partial(np.greater, pivot), partial(np.equal, pivot), partial(np.less, pivot))
            pending += zip(_split(values, chunks, tests, check), (False, True, False), strict=True)
            continue
        if not is_sorted and chunks:
            indices = np.concatenate(chunks)
            chunks = [indices[np.argsort(values[indices], kind="stable")]]
        for chunk in reversed(chunks):
            start = max(0, end - len(chunk))
            out[start:end] = chunk[len(chunk) - (end - start) :]
            end = start


def _split(
    values: AnyArray, chunks: Sequence[Indices], tests: Sequence[_Test], check: Callable[[], None]
) -> list[list[Indices]]:
    """Return for each test the indices whose values pass it, in order, in chunks."""
    passed: list[list[Indices]] = [[] for _ in tests]
    for chunk in chunks:
        check()
        selected = values[chunk]
        for test, found in zip(tests, passed, strict=True):
            if len(part := chunk[test(selected)]):
                found.append(part)
    return passed
