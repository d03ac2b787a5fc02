"""Measured figures and the limits that they should keep, printed as one line each.

A figure that exceeds its limit does not fail anything: the load of the machine decides too much.
"""

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnhal.cpu import available_cpus
from tests.shared import SHARED


@dataclass(frozen=True)
class Figure:
    """A measurement that was repeated in rounds.

    Attributes:
        name: what was measured.
        values: the value of each round.
        unit: the unit of the values.
        limit: what the median may be at most, or at least if `at_least`; None: there is no limit.
        at_least: whether `limit` is a lower bound.
    """

    name: str
    values: Sequence[float]
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def is_within_limit(self) -> bool:
        """True if the median keeps the limit."""
        median = statistics.median(self.values)
        return self.limit is None or (median >= self.limit if self.at_least else median <= self.limit)

    def __str__(self) -> str:
        low, median, high = min(self.values), statistics.median(self.values), max(self.values)
        text = f"{self.name:64}{median:8.2f} {self.unit:3} ({low:.2f} to {high:.2f} in {len(self.values)} rounds)"
        if self.limit is None:
            return text
        bound = f"at {'least' if self.at_least else 'most'} {self.limit:g} {self.unit}"
        return f"{text:120} {bound}: {'kept' if self.is_within_limit else 'NOT KEPT'}"


def model_path(name: str) -> Path:
    """Return the path of a model of ../shared/models."""
    return SHARED / "models" / f"{name}.tflite"


def show(title: str, measure: Callable[[], Iterable[Figure]]) -> None:
    """Measure and print figures, or print that the models are absent."""
    if not (SHARED / "models").exists():
        print(f"{title}: not measured, ../shared/models is not present")
        return
    print(f"{title} ({available_cpus()} cores, load {os.getloadavg()[0]:.1f})", flush=True)
    for figure in measure():
        print(figure, flush=True)
