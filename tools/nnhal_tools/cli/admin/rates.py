"""Rates and quantiles between two snapshots of a service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rates:
    """Changes between two snapshots.

    Attributes:
        executions_s: executions a second; None if there is no earlier snapshot.
        failed_s: failed ones a second; None if there is no earlier snapshot.
        latencies_s: quantiles 0.5, 0.9 and 0.99 of the durations in seconds; None if nothing was executed.
        uses_s: executions a second of each model, by id.
    """

    executions_s: float | None
    failed_s: float | None
    latencies_s: tuple[float, float, float] | None
    uses_s: Mapping[str, float]


def rates_between(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> Rates:
    """Return the changes between two snapshots. Without an earlier one, quantiles are over the whole time."""
    load = later["load"]
    if earlier is None:
        return Rates(None, None, _quantiles(load["bounds_s"], load["durations"]), {})
    seconds = max(later["at"] - earlier["at"], 1e-3)
    before = earlier["load"]
    counts = [max(0, new - old) for new, old in zip(load["durations"], before["durations"], strict=True)]
    uses = {model["id"]: model["uses"] for model in earlier["models"]}
    return Rates(
        max(0, load["executions"] - before["executions"]) / seconds,
        max(0, load["rejected"] - before["rejected"]) / seconds,
        _quantiles(load["bounds_s"], counts),
        {model["id"]: max(0, model["uses"] - uses.get(model["id"], 0)) / seconds for model in later["models"]},
    )


def _quantiles(bounds: Sequence[float], counts: Sequence[int]) -> tuple[float, float, float] | None:
    if not sum(counts):
        return None
    return _quantile(bounds, counts, 0.5), _quantile(bounds, counts, 0.9), _quantile(bounds, counts, 0.99)


def _quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return a quantile of observations in classes, as Prometheus estimates it: evenly distributed in a class."""
    rank = share * sum(counts)
    below = 0
    for number, count in enumerate(counts):
        if count and below + count >= rank:
            if number == len(bounds):
                return bounds[-1]
            low = bounds[number - 1] if number else 0.0
            return low + (bounds[number] - low) * (rank - below) / count
        below += count
    return bounds[-1]
