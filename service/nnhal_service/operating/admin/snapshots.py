"""Parts of the state of a service, made of the answers of its supervisor and workers, and of its files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnhal.admin.v1 import admin_pb2
from nnhal.recording.comparison import Agreement
from nnhal_cache.errors import CacheError
from nnhal_cache.store import Store
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import MODEL_DIGITS
from nnhal_service.metrics.catalog import Metric
from nnhal_service.metrics.series import OK
from nnhal_service.metrics.snapshot import HistogramValue, Labels, Snapshot
from nnhal_service.operating.admin.known_workers import KnownWorker
from nnhal_service.peers.fleet.member import Member
from nnhal_service.quarantine import QuarantineFile

CACHE_COUNTS = ("hits", "misses", "saves", "evictions", "set_aside")
"""Fields of `CacheSnapshot` that count in each worker."""
_RECORDED = ("records", "bytes", "lost")
"""Fields of `RecordingSnapshot` that count in each worker."""
_EXECUTION, _PREPARATION, _MISS = "execution", "preparation", "miss"
_PREPARING = ("prepare", "load")
"""Labels of metrics."""
_COMPARED = (Agreement.EQUAL, Agreement.WITHIN, Agreement.DIFFERENT)
_PATH = catalog.CALL_LABELS.index("path")
_MEMORY = Path("/proc/meminfo")


def service_state(
    status: Mapping[str, Any],
    workers: Sequence[KnownWorker],
    reports: Mapping[KnownWorker, admin_pb2.WorkerReport | None],
) -> str:
    """Return the state of a service: see `ServiceSnapshot.state`."""
    if status["state"] != "serving":
        return str(status["state"])
    states = {report.worker.state for worker in workers if worker.is_current and (report := reports[worker])}
    return "serving" if "serving" in states or not states else "draining"


def worker_snapshot(
    worker: KnownWorker, report: admin_pb2.WorkerReport | None, metrics: Snapshot | None
) -> admin_pb2.WorkerSnapshot:
    """Return the state of a worker, with its report and metrics if it answers."""
    snapshot = admin_pb2.WorkerSnapshot(state=worker.state if worker.state == "starting" else "silent")
    if report is not None:
        snapshot.CopyFrom(report.worker)
        if worker.state == "retiring":
            snapshot.state = "draining"
    snapshot.slot, snapshot.generation, snapshot.pid = worker.slot, worker.generation, worker.pid
    snapshot.started_at, snapshot.restarts, snapshot.last_end = worker.started_at, worker.restarts, worker.last_end
    snapshot.load.CopyFrom(load_snapshot(metrics or Snapshot()))
    return snapshot


def load_snapshot(metrics: Snapshot) -> admin_pb2.LoadSnapshot:
    """Return the work that metrics report."""
    durations = _executions(metrics, catalog.CALL_DURATION)
    waits = dict(zip(catalog.QUEUE_BOUNDS, counts := _executions(metrics, catalog.QUEUE_DURATION), strict=False))
    calls = {labels: each for labels, each in _values(metrics, catalog.CALLS).items() if _is_execution(labels)}
    succeeded = sum(value for labels, value in calls.items() if labels[-1] == OK)
    return admin_pb2.LoadSnapshot(
        running=_with_label(metrics, catalog.IN_PROGRESS, _EXECUTION),
        queued=_with_label(metrics, catalog.QUEUED, _EXECUTION),
        preparing=_with_label(metrics, catalog.QUEUED, _PREPARATION)
        + _with_label(metrics, catalog.IN_PROGRESS, _PREPARATION),
        executions=int(sum(calls.values())),
        rejected=int(sum(calls.values()) - succeeded),
        bounds_s=catalog.DURATION_BOUNDS,
        durations=durations,
        waits=(*(waits.get(bound, 0) for bound in catalog.DURATION_BOUNDS), counts[-1]),
        waited_s=sum(each.sum for each in _execution_histograms(metrics, catalog.QUEUE_DURATION)),
    )


def _values(metrics: Snapshot, metric: Metric) -> Mapping[tuple[str, ...], float]:
    return metrics.values.get(metric.name, {})


def _with_label(metrics: Snapshot, metric: Metric, label: str) -> int:
    return int(sum(value for labels, value in _values(metrics, metric).items() if label in labels))


def _executions(metrics: Snapshot, metric: Metric) -> tuple[int, ...]:
    """Return the numbers of observations by class, over all executions."""
    rows = [each.counts for each in _execution_histograms(metrics, metric)]
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * (len(metric.bounds) + 1)


def _execution_histograms(metrics: Snapshot, metric: Metric) -> list[HistogramValue]:
    histograms = metrics.histograms.get(metric.name, {})
    return [each for labels, each in histograms.items() if _is_execution(labels)]


def _is_execution(labels: Labels) -> bool:
    """Return whether calls with these labels are executions, and not preparations."""
    return labels[_PATH] not in _PREPARING


def model_snapshots(reports: Iterable[admin_pb2.WorkerReport], metrics: Snapshot) -> Iterator[admin_pb2.ModelSnapshot]:
    """Yield the prepared models, with what the shadow has found out about them."""
    compared, different = Counter[str](), Counter[str]()
    for (label, result), count in _values(metrics, catalog.SHADOW).items():
        compared[label] += int(count) if result in _COMPARED else 0
        different[label] += int(count) if result == Agreement.DIFFERENT else 0
    for model in (model for report in reports for model in report.models):
        label = model.digest[:MODEL_DIGITS]
        model.shadow_compared, model.shadow_different = compared[label], different[label]
        yield model


def open_store(status: Mapping[str, Any]) -> Store:
    """Return the cache of a service."""
    return Store(Path(status["cache_dir"]), status["cache_bytes"])


def cache_snapshot(
    status: Mapping[str, Any], reports: Iterable[admin_pb2.WorkerReport], metrics: Snapshot
) -> admin_pb2.CacheSnapshot:
    """Return the state of the cache, with the counts of workers."""
    store = open_store(status)
    try:
        entries = store.list()
    except CacheError:
        entries = []
    counts = [report.cache for report in reports]
    return admin_pb2.CacheSnapshot(
        directory=str(store.layout.root),
        size=sum(entry.size for entry in entries),
        max_bytes=store.max_bytes,
        entries=(
            admin_pb2.CacheEntrySnapshot(
                identity=entry.identity,
                token=entry.token.hex(),
                size=entry.size,
                saved_at=entry.saved_at,
                last_used_at=entry.last_used_at,
                hits=entry.hits,
                backends=entry.backends,
                model_name=entry.name,
            )
            for entry in entries
        ),
        miss_reasons=_miss_reasons(metrics),
        **{name: sum(getattr(each, name) for each in counts) for name in CACHE_COUNTS},
    )


def _miss_reasons(metrics: Snapshot) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for (_, state, reason), value in _values(metrics, catalog.CACHE_RESULTS).items():
        if state == _MISS:
            reasons[reason] = reasons.get(reason, 0) + int(value)
    return reasons


def quarantine_snapshots(status: Mapping[str, Any]) -> Iterator[admin_pb2.QuarantineSnapshot]:
    """Return the models in quarantine."""
    file = QuarantineFile(Path(status["state_dir"]))
    for digest, crashes in file.crashes().items():
        verdict = file.verdict(bytes.fromhex(digest))
        yield admin_pb2.QuarantineSnapshot(
            digest=digest,
            crashes=len(crashes),
            last_at=crashes[-1].at,
            how=crashes[-1].how,
            backends=dict.fromkeys(crash.backend or "unknown" for crash in crashes),
            excluded=verdict.excluded,
            refused=bool(verdict.refusal),
        )


def member_snapshot(member: Member) -> admin_pb2.MemberSnapshot:
    """Return the record of a member of the fleet for operators."""
    names = (field.name for field in admin_pb2.MemberSnapshot.DESCRIPTOR.fields if field.name != "models")
    return admin_pb2.MemberSnapshot(**{name: getattr(member, name) for name in names}, models=len(member.models))


def count_members(snapshot: Snapshot, members: Iterable[Member]) -> None:
    """Add the number of members of the fleet to metrics, by state."""
    for state in ("serving", "draining"):  # else a state without members would keep its last value
        snapshot.add(catalog.FLEET_MEMBERS, 0, state)
    for member in members:
        snapshot.add(catalog.FLEET_MEMBERS, 1, "draining" if member.draining else "serving")


def recording_snapshot(reports: Iterable[admin_pb2.WorkerReport]) -> admin_pb2.RecordingSnapshot:
    """Return the state of the recording, with the counts of all workers."""
    merged = admin_pb2.RecordingSnapshot()
    counts: Counter[str] = Counter()
    for report in reports:
        merged.CopyFrom(report.recording)
        counts.update({name: getattr(merged, name) for name in _RECORDED})
    for name, count in counts.items():
        setattr(merged, name, count)
    return merged


def free_bytes() -> int:
    """Return the memory of this host that programs can get without swapping."""
    lines = _MEMORY.read_text().splitlines()
    (available,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(available.split()[1]) * 1024
