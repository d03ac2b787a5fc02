"""Metrics in the formats of Prometheus, by its official library."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as LibraryExemplar

from nnhal_service.metrics.catalog import METRICS, Kind, Metric
from nnhal_service.metrics.snapshot import HistogramValue, Labels, Snapshot

_DIGITS = 9
"""Digits of seconds: times are counted in nanoseconds. The last bits of a sum depend on the order of the processes, and
Prometheus takes a counter that goes back by one of them for one that has started again."""


class SnapshotCollector(Collector):
    """Collector of the library, for the values of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """Yield all metrics, also those without values."""
        for metric in METRICS.values():
            if metric.kind is Kind.HISTOGRAM:
                yield _histogram_family(metric, self._snapshot.histograms.get(metric.name, {}))
                continue
            family_type = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = family_type(metric.name, metric.help, labels=metric.labels)
            for labels, value in self._snapshot.values.get(metric.name, {}).items():
                family.add_metric(labels, round(value, _DIGITS))
            yield family


def render(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics as text, with its content type.

    The header `Accept` of the request selects OpenMetrics, which has exemplars, or the classic format.
    """
    encode, content_type = choose_encoder(accept)
    return encode(SnapshotCollector(snapshot)), content_type


def _histogram_family(metric: Metric, values: dict[Labels, HistogramValue]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(f"{bound:.10g}" for bound in metric.bounds), "+Inf"]
    for labels, value in values.items():
        total = 0
        buckets: list[tuple[str, float] | tuple[str, float, LibraryExemplar]] = []
        for number, (bound, count) in enumerate(zip(bounds, value.counts, strict=True)):
            total += count
            exemplar = value.exemplars.get(number)
            if exemplar is None:
                buckets.append((bound, total))
            else:
                labeled = LibraryExemplar({"trace_id": exemplar.trace_id}, exemplar.value, exemplar.at)
                buckets.append((bound, total, labeled))
        family.add_metric(labels, buckets, round(value.sum, _DIGITS))
    return family
