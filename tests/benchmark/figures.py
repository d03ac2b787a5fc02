"""A figure and the limit that it is meant to keep, as one line: median of the rounds, lowest and highest.

Nothing fails here: how busy the machine is decides too much.
"""

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shared import SHARED


@dataclass(frozen=True)
class Figure:
    """What was measured, round by round.

    Attributes:
        limit: what the median may be at most, or at least where `at_least`.
    """

    name: str
    values: Sequence[float]
    unit: str
    limit: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the median keeps the limit."""
        median = statistics.median(self.values)
        return median >= self.limit if self.at_least else median <= self.limit

    def __str__(self) -> str:
        low, median, high = min(self.values), statistics.median(self.values), max(self.values)
        bound = f"at {'least' if self.at_least else 'most'} {self.limit:g} {self.unit}"
        spread = f"{median:8.2f} {self.unit:3} ({low:.2f} to {high:.2f} in {len(self.values)} rounds)"
        return f"{self.name:64}{spread:44} {bound}: {'kept' if self.kept else 'NOT KEPT'}"


def model(name: str) -> Path:
    """A model of ../shared/models."""
    return SHARED / "models" / f"{name}.tflite"


def show(title: str, measure: Callable[[], Sequence[Figure]]) -> None:
    """Measures and prints; says so where the models are absent."""
    if not (SHARED / "models").exists():
        print(f"{title}: not measured, ../shared/models is not present")
        return
    print(f"{title} ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})", flush=True)
    for figure in measure():
        print(figure, flush=True)
    sys.stdout.flush()
