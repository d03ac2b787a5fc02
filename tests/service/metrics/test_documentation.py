"""docs/metrics.md: it lists the metrics, labels and values of the code."""

import re
from pathlib import Path

from nnhal.inference.open_inference_pb2 import DESCRIPTOR as SERVER
from nnhal.services import SERVICES
from nnhal_service.metrics import calls
from nnhal_service.metrics.catalog import METRICS
from nnhal_service.metrics.preparations import REASONS
from nnhal_service.metrics.supervisor_metrics import RESTART_REASONS

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `(nnhal_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def test_each_metric_is_documented() -> None:
    documented = {
        name: (kind, re.findall(r"`(\w+)`", labels), help_) for name, kind, labels, help_ in _ROW.findall(TEXT)
    }
    actual = {m.sample: (m.kind.value, list(m.labels), m.help) for m in METRICS.values()}
    assert documented == actual


def test_names_follow_the_conventions() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"nnhal_[a-z_]+", metric.name)
        assert not metric.name.endswith("_total"), "the suffix of counters is added"
        assert metric.help.endswith(".")
        assert sorted(metric.bounds) == list(metric.bounds)
        for unit in ("milliseconds", "_ms", "_ns", "_mb", "megabytes"):
            assert unit not in metric.name


def test_bounds_and_reasons_are_documented() -> None:
    assert f"at most {calls.MAX_SERIES} combinations" in TEXT
    assert f"at most {calls.MAX_SERIES_OF_IDENTITY} of each identity, and {calls.MAX_IDENTITIES} identities" in TEXT
    assert f"the first {calls.MODEL_DIGITS} digits" in TEXT
    for reason in RESTART_REASONS:
        assert f"`{reason}`" in TEXT
    assert len({label for label, _ in REASONS}) == len(REASONS)


def test_paths_of_refused_calls_are_those_of_methods() -> None:
    services = [*(each.descriptor for each in SERVICES.values()), *SERVER.services_by_name.values()]
    methods = {method.full_name.removeprefix("nnhal.v1.") for service in services for method in service.methods}
    assert set(calls.METHOD_PATHS) - {"DataSocket.RUN"} <= methods
    assert all(f"`{path}`" in TEXT for path in calls.METHOD_PATHS.values())
