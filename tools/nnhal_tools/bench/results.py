"""Results of a load test: what the samples of all rounds say about each subject at each level."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from nnhal_tools.bench.load import Sample
from nnhal_tools.bench.specification import Level, Subject

PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Spread:
    """Values of several rounds: their median, the least and the largest."""

    median: float
    least: float
    largest: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return Spread(median(values), min(values), max(values))


@dataclass(frozen=True)
class LoadResult:
    """Result of a subject at a level.

    Attributes:
        calls_per_s: throughput of the rounds.
        latency_us: mean and largest latency, and percentiles, of the calls of all rounds, in microseconds.
        split_us: the mean latency of the measured calls, divided into device (computing), driver (waiting for a slot,
            checks, copies) and transfer (the rest: messages, both processes' gRPC, the network); {} if unknown.
        client_us: processor time of the clients per call.
        service_us: processor time of the service per call; None if unknown.
        ratio: median latency in multiples of that of the baseline, round by round; None for the baseline.
    """

    subject: Subject
    level: Level
    calls: int
    errors: dict[str, int]
    calls_per_s: Spread
    latency_us: dict[str, float]
    split_us: dict[str, float]
    client_us: float
    service_us: float | None
    ratio: Spread | None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return asdict(self)


def summarize(
    subject: Subject, level: Level, samples: Sequence[Sample], baseline: Sequence[Sample] | None = None
) -> LoadResult:
    """Return the result of the samples of all rounds, one for each.

    `baseline` are the samples of the subject that this one is compared with, in the same rounds.
    """
    latencies = np.concatenate([sample.latencies for sample in samples]) * 1e6
    errors = dict(sum((Counter(sample.errors) for sample in samples), Counter[str]()))
    service = [sample.service_s for sample in samples if sample.service_s is not None]
    return LoadResult(
        subject,
        level,
        len(latencies),
        errors,
        Spread.of([sample.calls_per_s for sample in samples]),
        _latency(latencies),
        _split(np.concatenate([sample.measured for sample in samples]) * 1e6),
        median(sample.client_s for sample in samples) * 1e6,
        median(service) * 1e6 if service else None,
        _ratio(samples, baseline),
    )


def _latency(latencies: "np.ndarray[Any, np.dtype[Any]]") -> dict[str, float]:
    if not len(latencies):
        return {}
    values = {"mean": float(latencies.mean()), "max": float(latencies.max())}
    for percentile, value in zip(PERCENTILES, np.percentile(latencies, PERCENTILES), strict=True):
        values[f"p{percentile:g}"] = float(value)
    return values


def _split(measured: "np.ndarray[Any, np.dtype[Any]]") -> dict[str, float]:
    if not len(measured):
        return {}
    latency, device, driver = measured.mean(axis=0)
    return {"device": float(device), "driver": float(driver - device), "transfer": float(latency - driver)}


def _ratio(samples: Sequence[Sample], baseline: Sequence[Sample] | None) -> Spread | None:
    if baseline is None:
        return None
    pairs = [(own.latencies, other.latencies) for own, other in zip(samples, baseline, strict=True)]
    ratios = [float(np.median(own) / np.median(other)) for own, other in pairs if len(own) and len(other)]
    return Spread.of(ratios) if ratios else None
