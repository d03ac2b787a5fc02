"""Quantiles of durations that are counted by class, as in `LoadSnapshot` of nnhal.admin.v1."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return an estimate of a quantile, linear within its class, as in Prometheus; None if all classes are empty.

    Args:
        bounds: upper bounds of the classes; the last class has none.
        counts: number of values in each class.
        share: 0.99 for the 99th percentile.
    """
    rank = share * sum(counts)
    if rank == 0:
        return None
    cumulative = list(accumulate(counts))
    index = bisect_left(cumulative, rank)
    if index >= len(bounds):
        return bounds[-1] if bounds else None
    lower = bounds[index - 1] if index else 0.0
    return lower + (bounds[index] - lower) * (1 - (cumulative[index] - rank) / counts[index])
