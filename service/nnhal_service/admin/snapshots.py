"""Parts of the state of a service, made of the answers of its supervisor and workers, and of its files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnhal_cache.errors import CacheError
from nnhal_cache.store import Store
from nnhal_service.admin.known_workers import KnownWorker
from nnhal_service.admin.view import (
    CacheEntrySnapshot,
    CacheSnapshot,
    LoadSnapshot,
    MemberSnapshot,
    QuarantineSnapshot,
    WorkerSnapshot,
)
from nnhal_service.admin.worker_report import CACHE_COUNTS, WorkerReport
from nnhal_service.fleet.member import Member
from nnhal_service.metrics import catalog
from nnhal_service.metrics.catalog import Metric
from nnhal_service.metrics.series import OK
from nnhal_service.metrics.snapshot import HistogramValue, Snapshot
from nnhal_service.quarantine import QuarantineFile

_EXECUTION, _PREPARATION, _MISS = "execution", "preparation", "miss"
_PREPARING = {"prepare", "load"}
"""Labels of metrics."""
_MEMORY = Path("/proc/meminfo")


def service_state(
    status: Mapping[str, Any], workers: Sequence[KnownWorker], reports: Mapping[KnownWorker, WorkerReport | None]
) -> str:
    """Return the state of a service: see `ServiceSnapshot.state`."""
    if status["state"] != "serving":
        return str(status["state"])
    states = {report.state for worker in workers if worker.is_current and (report := reports[worker])}
    return "serving" if "serving" in states or not states else "draining"


def worker_snapshot(worker: KnownWorker, report: WorkerReport | None, metrics: Snapshot | None) -> WorkerSnapshot:
    """Return the state of a worker, with its report and metrics if it answers."""
    state = worker.state
    if report is None:
        state = state if state == "starting" else "silent"
    else:
        state = "draining" if state == "retiring" else report.state
    return WorkerSnapshot(
        worker.slot,
        worker.generation,
        worker.pid,
        state,
        worker.started_at,
        worker.restarts,
        worker.last_end,
        len(report.sessions) if report else 0,
        report.memory_bytes if report else 0,
        report.client_bytes if report else 0,
        report.threads if report else 0,
        load_snapshot(metrics or Snapshot()),
    )


def load_snapshot(metrics: Snapshot) -> LoadSnapshot:
    """Return the work that metrics report."""
    durations = _executions(metrics, catalog.CALL_DURATION)
    waits = dict(zip(catalog.QUEUE_BOUNDS, counts := _executions(metrics, catalog.QUEUE_DURATION), strict=False))
    calls = {
        labels: value for labels, value in _values(metrics, catalog.CALLS).items() if _PREPARING.isdisjoint(labels)
    }
    succeeded = sum(value for labels, value in calls.items() if labels[-1] == OK)
    return LoadSnapshot(
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
    return [each for labels, each in histograms.items() if _PREPARING.isdisjoint(labels)]


def open_store(status: Mapping[str, Any]) -> Store:
    """Return the cache of a service."""
    return Store(Path(status["cache_dir"]), status["cache_bytes"])


def cache_snapshot(status: Mapping[str, Any], reports: Iterable[WorkerReport], metrics: Snapshot) -> CacheSnapshot:
    """Return the state of the cache, with the counts of workers."""
    store = open_store(status)
    try:
        entries = store.list()
    except CacheError:
        entries = []
    counts = [report.cache_counts for report in reports]
    totals = {name: sum(each.get(name, 0) for each in counts) for name in CACHE_COUNTS}
    return CacheSnapshot(
        str(store.layout.root),
        sum(entry.size for entry in entries),
        store.max_bytes,
        tuple(
            CacheEntrySnapshot(
                entry.identity,
                entry.token.hex(),
                entry.size,
                entry.saved_at,
                entry.last_used_at,
                entry.hits,
                entry.backends,
            )
            for entry in entries
        ),
        **totals,
        miss_reasons=_miss_reasons(metrics),
    )


def _miss_reasons(metrics: Snapshot) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for (_, state, reason), value in _values(metrics, catalog.CACHE_RESULTS).items():
        if state == _MISS:
            reasons[reason] = reasons.get(reason, 0) + int(value)
    return reasons


def quarantine_snapshots(status: Mapping[str, Any]) -> tuple[QuarantineSnapshot, ...]:
    """Return the models in quarantine."""
    file = QuarantineFile(Path(status["state_dir"]))
    found = []
    for digest, crashes in file.crashes().items():
        verdict = file.verdict(bytes.fromhex(digest))
        found.append(
            QuarantineSnapshot(
                digest,
                len(crashes),
                crashes[-1].at,
                crashes[-1].how,
                tuple(dict.fromkeys(crash.backend or "unknown" for crash in crashes)),
                verdict.excluded,
                bool(verdict.refusal),
            )
        )
    return tuple(found)


def member_snapshot(member: Member) -> MemberSnapshot:
    """Return the record of a member of the fleet for operators."""
    return MemberSnapshot(
        member.id,
        member.host,
        member.address,
        member.version,
        member.generation,
        member.draining,
        member.cpus,
        member.free_bytes,
        member.sessions,
        member.executions,
        tuple(member.backends),
        tuple(member.accelerators),
        len(member.models),
        member.wait_s,
    )


def count_members(snapshot: Snapshot, members: Iterable[Member]) -> None:
    """Add the number of members of the fleet to metrics, by state."""
    for state in ("serving", "draining"):  # else a state without members would keep its last value
        snapshot.add(catalog.FLEET_MEMBERS, 0, state)
    for member in members:
        snapshot.add(catalog.FLEET_MEMBERS, 1, "draining" if member.draining else "serving")


def free_bytes() -> int:
    """Return the memory of this host that programs can get without swapping."""
    lines = _MEMORY.read_text().splitlines()
    (available,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(available.split()[1]) * 1024
