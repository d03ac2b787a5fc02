"""Rates and quantiles between two snapshots of a service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnhal.admin.quantiles import quantile


@dataclass(frozen=True)
class Rates:
    """Changes between two snapshots.

    Attributes:
        executions_s: executions a second; None if there is no earlier snapshot.
        failed_s: failed ones a second; None if there is no earlier snapshot.
        p50_s, p99_s: quantiles 0.5 and 0.99 of the durations in seconds; None if nothing was executed.
        uses_s: executions a second of each model, by id.
    """

    executions_s: float | None
    failed_s: float | None
    p50_s: float | None
    p99_s: float | None
    uses_s: Mapping[str, float]


def rates_between(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> Rates:
    """Return the changes between two snapshots. Without an earlier one, quantiles are over the whole time."""
    load = later["load"]
    bounds, durations = load["bounds_s"], load["durations"]
    if earlier is None:
        return Rates(None, None, quantile(bounds, durations, 0.5), quantile(bounds, durations, 0.99), {})
    seconds = max(later["at"] - earlier["at"], 1e-3)
    before = earlier["load"]
    counts = [max(0, new - old) for new, old in zip(durations, before["durations"], strict=True)]
    uses = {model["id"]: model["uses"] for model in earlier["models"]}
    return Rates(
        max(0, load["executions"] - before["executions"]) / seconds,
        max(0, load["rejected"] - before["rejected"]) / seconds,
        quantile(bounds, counts, 0.5),
        quantile(bounds, counts, 0.99),
        {model["id"]: max(0, model["uses"] - uses.get(model["id"], 0)) / seconds for model in later["models"]},
    )
