"""Snapshots of metrics: values at one moment, as bytes between processes and in files, and their sum."""

import json
import math
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from nnhal_service.metrics.catalog import METRICS, Kind, Merge, Metric

Labels: TypeAlias = tuple[str, ...]
MAX_BYTES = 2**26
"""Largest snapshot that is decoded."""
FILE = "metrics.json"
"""Name of the file with the last metrics of a process, in its private folder."""


class Exemplar(NamedTuple):
    """Example of an observation of a histogram.

    Attributes:
        trace_id: of its trace, in hexadecimal.
        at: seconds since 1970.
    """

    trace_id: str
    value: float
    at: float


@dataclass(slots=True)
class HistogramValue:
    """Value of a histogram for one set of labels.

    Attributes:
        counts: number of observations in each bucket; the last one has no upper bound.
        exemplars: by number of the bucket.
    """

    counts: list[int]
    sum: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)

    def add(self, other: "HistogramValue") -> None:
        """Add the observations of another one. Of two exemplars, the later one stays."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum
        for bucket, exemplar in other.exemplars.items():
            if bucket not in self.exemplars or self.exemplars[bucket].at < exemplar.at:
                self.exemplars[bucket] = exemplar

    def copy(self) -> "HistogramValue":
        """Return a copy."""
        return HistogramValue(list(self.counts), self.sum, dict(self.exemplars))


@dataclass(slots=True)
class Snapshot:
    """Values of metrics at one moment.

    Attributes:
        source: number of the start of the worker, which is unique within a service; 0 for other processes.
        number: number of the snapshot of its source; later ones have larger numbers.
        includes: the sources of the workers that have ended, whose counters are part of this snapshot.
        values: of counters and gauges, by name and labels.
        histograms: by name and labels.
    """

    source: int = 0
    number: int = 0
    includes: set[int] = field(default_factory=set)
    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, HistogramValue]] = field(default_factory=dict)

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a counter or gauge."""
        values = self.values.setdefault(metric.name, {})
        values[labels] = values.get(labels, 0) + value

    def add_histogram(self, metric: Metric, value: HistogramValue, *labels: str) -> None:
        """Add observations to a histogram."""
        values = self.histograms.setdefault(metric.name, {})
        if labels in values:
            values[labels].add(value)
        else:
            values[labels] = value.copy()

    def merge(self, other: "Snapshot", *, gauges: bool = True) -> None:
        """Add the values of another process, without its gauges if it has ended: they mean nothing then."""
        self.includes |= other.includes
        for name, values in other.values.items():
            metric = METRICS[name]
            if metric.kind is Kind.GAUGE and not gauges:
                continue
            own = self.values.setdefault(name, {})
            for labels, value in values.items():
                old = own.get(labels, 0)
                own[labels] = max(old, value) if metric.merge is Merge.MAX else old + value
        for name, histograms in other.histograms.items():
            for labels, histogram in histograms.items():
                self.add_histogram(METRICS[name], histogram, *labels)

    def encode(self) -> bytes:
        """Return the snapshot as bytes."""
        return json.dumps(
            {
                "source": self.source,
                "number": self.number,
                "includes": sorted(self.includes),
                "values": {name: list(values.items()) for name, values in self.values.items()},
                "histograms": {
                    name: [(labels, h.counts, h.sum, list(h.exemplars.items())) for labels, h in histograms.items()]
                    for name, histograms in self.histograms.items()
                },
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def decode(data: bytes) -> "Snapshot":
        """Return the snapshot in bytes. Metrics that this release does not know are left out.

        Raises:
            ValueError: the bytes are not a snapshot.
        """
        if len(data) > MAX_BYTES:
            raise ValueError(f"the snapshot has {len(data)} bytes; at most {MAX_BYTES} are decoded")
        try:
            content = json.loads(data)
            snapshot = Snapshot(int(content["source"]), int(content["number"]), set(map(int, content["includes"])))
            for name, values in content["values"].items():
                if name in METRICS and METRICS[name].kind is not Kind.HISTOGRAM:
                    snapshot.values[name] = {_labels(METRICS[name], labels): _number(value) for labels, value in values}
            for name, rows in content["histograms"].items():
                if name in METRICS and METRICS[name].kind is Kind.HISTOGRAM:
                    snapshot.histograms[name] = _histograms(METRICS[name], rows)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the snapshot is invalid: {error!r}") from error
        return snapshot


class ServiceMetrics:
    """Sum over the workers of a service. Its counters never go back. Thread safe."""

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}
        self._lock = threading.Lock()

    def merge(self, ended: Snapshot, living: Collection[Snapshot]) -> Snapshot:
        """Return the values of the service.

        Args:
            ended: snapshot of the supervisor, with the totals of the workers that have ended.
            living: snapshots of the workers that answered. For one that did not, counters keep their last values until
                the supervisor has its total.
        """
        answered = {snapshot.source for snapshot in living}
        with self._lock:
            for snapshot in living:
                last = self._last.get(snapshot.source)
                if last is None or last.number < snapshot.number:  # else another thread has asked later
                    self._last[snapshot.source] = snapshot
            self._last = {source: each for source, each in self._last.items() if source not in ended.includes}
            snapshots = list(self._last.values())
        total = Snapshot()
        total.merge(ended)
        for snapshot in snapshots:
            total.merge(snapshot, gauges=snapshot.source in answered)
        return total


def _histograms(metric: Metric, rows: Iterable[tuple[Any, ...]]) -> dict[Labels, HistogramValue]:
    histograms = {}
    for labels, counts, total, exemplars in rows:
        if len(counts) != len(metric.bounds) + 1:
            raise ValueError(f"{metric.name} has {len(counts)} buckets; expected {len(metric.bounds) + 1}")
        examples = {
            int(bucket): Exemplar(str(trace), float(value), float(at)) for bucket, (trace, value, at) in exemplars
        }
        histograms[_labels(metric, labels)] = HistogramValue(
            [int(_number(count)) for count in counts], _number(total), examples
        )
    return histograms


def _number(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is not a value of a metric")
    return number


def _labels(metric: Metric, values: Iterable[str]) -> Labels:
    labels = tuple(map(str, values))
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has {len(labels)} labels; expected {len(metric.labels)}")
    return labels
