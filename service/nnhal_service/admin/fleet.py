"""The view of a service with workers: asks the supervisor and all workers, and puts their answers together."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from nnhal.version import __version__
from nnhal_cache.errors import CacheError
from nnhal_cache.store import Store
from nnhal_service import log
from nnhal_service.admin.control import ask_worker
from nnhal_service.admin.stacks import all_stacks
from nnhal_service.admin.supervisor_link import SupervisorLink
from nnhal_service.admin.view import (
    AbilitySnapshot,
    AdminError,
    CacheEntrySnapshot,
    CacheSnapshot,
    LoadSnapshot,
    QuarantineSnapshot,
    ServiceSnapshot,
    SettingSnapshot,
    WarningSnapshot,
    WorkerSnapshot,
)
from nnhal_service.admin.worker_report import CACHE_COUNTS, WorkerReport, read_abilities
from nnhal_service.log import event
from nnhal_service.metrics import catalog
from nnhal_service.metrics.catalog import Metric
from nnhal_service.metrics.exposition import render
from nnhal_service.metrics.series import OK
from nnhal_service.metrics.service_metrics import ServiceMetrics
from nnhal_service.metrics.snapshot import HistogramValue, Snapshot
from nnhal_service.metrics.supervisor_metrics import read_totals
from nnhal_service.quarantine import QuarantineFile
from nnhal_service.settings import LogLevel, Settings

_TIMEOUT_S = 2.0
"""Seconds that a worker may take for an answer."""
_ABILITIES_TIMEOUT_S = 30.0
_THREADS = 8
_MAX_WARNINGS = 100
_EXECUTION, _PREPARATION, _MISS = "execution", "preparation", "miss"
_PREPARING = {"prepare", "load"}
"""Labels of metrics."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker, as the supervisor knows it."""

    slot: int
    generation: int
    pid: int
    state: str
    started_at: float
    restarts: int
    last_end: str
    folder: str

    @property
    def is_current(self) -> bool:
        """True if it takes part in the service; false for one that has been replaced and finishes its work."""
        return self.state != "retiring"


class WorkersView:
    """A service with workers: see `ServiceView`."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link
        self._threads = ThreadPoolExecutor(_THREADS, "nnhal-admin-ask")
        self._metrics = ServiceMetrics()
        self._abilities: tuple[int, Sequence[AbilitySnapshot]] = (-1, ())

    # ---- State ------------------------------------------------------------------------------------------

    def snapshot(self) -> ServiceSnapshot:
        """Return the state."""
        status = self._link.ask("status")
        workers = _workers(status)
        reports = dict(zip(workers, self._threads.map(_report, workers), strict=True))
        metrics, by_worker = self._collect(status, workers)
        answered = [report for report in reports.values() if report is not None]
        devices = next((report.devices for worker, report in reports.items() if report and worker.is_current), ())
        warnings = [WarningSnapshot(**each) for each in status["warnings"]]
        warnings += [warning for report in answered for warning in report.warnings]
        return ServiceSnapshot(
            time.time(),
            __version__,
            _state(status, workers, reports),
            status["pid"],
            status["started_at"],
            tuple(status["addresses"]),
            status["log_level"],
            _load(metrics),
            devices,
            tuple(_worker_snapshot(worker, reports[worker], by_worker.get(worker.generation)) for worker in workers),
            tuple(session for report in answered for session in report.sessions),
            tuple(model for report in answered for model in report.models),
            _cache(status, answered, metrics),
            _quarantine(status),
            tuple(sorted(warnings, key=lambda warning: warning.at)[-_MAX_WARNINGS:]),
        )

    def abilities(self) -> Sequence[AbilitySnapshot]:
        """Return what the devices can do, as the first worker that answers says."""
        problem = "no worker is running"
        for worker in self._chosen(None):
            if worker.generation == self._abilities[0]:
                return self._abilities[1]
            try:
                found = read_abilities(ask_worker(Path(worker.folder), "abilities", _ABILITIES_TIMEOUT_S))
            except (AdminError, OSError, ValueError) as error:
                problem = str(error)
                continue
            self._abilities = worker.generation, found
            return found
        raise AdminError(f"no worker tells what the devices can do: {problem}")

    def settings(self) -> Sequence[SettingSnapshot]:
        """Return the effective settings."""
        return [SettingSnapshot(*each) for each in self._link.ask("settings")["settings"]]

    def current_settings(self) -> Settings:
        """Return the settings, which a reload may have changed.

        Raises:
            AdminError: the supervisor does not answer.
        """
        return Settings.model_validate(self._link.ask("values")["values"])

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of all workers for Prometheus, and their content type."""
        status = self._link.ask("status")
        return render(self._collect(status, _workers(status))[0], accept)

    def _collect(self, status: Mapping[str, Any], workers: Sequence[_Worker]) -> tuple[Snapshot, dict[int, Snapshot]]:
        """Return the metrics of the service, and those of its workers by number of their start."""
        ended = read_totals(Path(status["metrics"]))
        by_worker = {each.source: each for each in self._threads.map(_metrics, workers) if each is not None}
        return self._metrics.merge(ended, by_worker.values()), by_worker

    def stacks(self, by: str, worker: int | None = None) -> Mapping[str, str]:
        """Return the stacks of all threads, of one worker or of all, by the name of the process."""
        chosen = self._chosen(worker)

        def ask(each: _Worker) -> str:
            try:
                return ask_worker(Path(each.folder), "stacks", _TIMEOUT_S).decode("utf-8", "replace")
            except (AdminError, OSError) as error:
                return f"no answer: {error}\n"

        texts = self._threads.map(ask, chosen)
        stacks = {f"worker {each.slot} (process {each.pid})": text for each, text in zip(chosen, texts, strict=True)}
        if worker is None:
            stacks["admin"] = all_stacks()
        _audit("stacks", by, f"{len(stacks)} processes", worker="all" if worker is None else worker)
        return stacks

    # ---- Actions ----------------------------------------------------------------------------------------

    def drain(self, by: str, worker: int | None = None) -> str:
        """Have a worker, or all, take no more sessions, and send its clients elsewhere."""
        return self._set_drained(by, "drain", worker, drained=True)

    def resume(self, by: str, worker: int | None = None) -> str:
        """Undo `drain`."""
        return self._set_drained(by, "resume", worker, drained=False)

    def _set_drained(self, by: str, command: str, worker: int | None, *, drained: bool) -> str:
        with _Audited(command, by, worker="all" if worker is None else worker) as audited:
            chosen = self._chosen(worker)
            # the supervisor first: it tells a worker that starts meanwhile
            self._link.ask("drain", slots=[each.slot for each in chosen], drained=drained)
            audited.result = self._tell(chosen, command, "drained" if drained else "resumed")
        return audited.result

    def reload(self, by: str) -> str:
        """Read the settings and plug-ins again, and replace the workers one by one."""
        with _Audited("reload", by) as audited:
            self._link.ask("reload")
            audited.result = "the settings are valid; the workers are being replaced"
        return audited.result

    def end_session(self, by: str, session: str) -> str:
        """End a session at once."""
        with _Audited("end-session", by, session=session) as audited:
            slot, _, rest = session.partition(".")
            generation = rest.partition(".")[0]
            for worker in self._chosen(None, all_generations=True):
                if (str(worker.slot), str(worker.generation)) == (slot, generation):
                    self._ask_one(worker, "end-session", session=session)
                    audited.result = f"ended session {session}"
                    return audited.result
            raise AdminError(f"there is no session {session!r}")

    def clear_quarantine(self, by: str, digests: Sequence[str] = ()) -> str:
        """Allow models again."""
        with _Audited("clear-quarantine", by, digests=",".join(digests) or "all") as audited:
            file = QuarantineFile(Path(self._link.ask("status")["state_dir"]))
            known = file.crashes()
            for prefix in digests:
                if not any(digest.startswith(prefix.lower()) for digest in known):
                    raise AdminError(f"no digest starts with {prefix!r}")
            try:
                count = sum(file.clear(prefix.lower()) for prefix in digests or ("",)) if known else 0
            except OSError as error:
                raise AdminError(f"cannot write the quarantine: {error}") from error
            audited.result = f"cleared {count} {'model' if count == 1 else 'models'}"
        return audited.result

    def clear_cache(self, by: str, identity: str | None = None, tokens: Sequence[str] = ()) -> str:
        """Remove entries of the cache."""
        fields = {"identity": "all" if identity is None else identity, "tokens": ",".join(tokens) or "all"}
        with _Audited("clear-cache", by, **fields) as audited:
            store = _store(self._link.ask("status"))
            try:
                known = [entry.token for entry in store.list(identity)] if tokens else []
                chosen = [token for prefix in tokens for token in _with_prefix(known, prefix)]
                count = store.clear(identity, chosen)
            except CacheError as error:
                raise AdminError(str(error)) from error
            audited.result = f"removed {count} {'entry' if count == 1 else 'entries'}"
        return audited.result

    def set_log_level(self, by: str, level: str) -> str:
        """Log from this severity on, in all processes, until the next start or reload."""
        with _Audited("log-level", by, to=level) as audited:
            if level.upper() not in get_args(LogLevel):
                raise AdminError(f"invalid level {level!r}; expected {', '.join(get_args(LogLevel))}")
            self._link.ask("log-level", level=level.upper())
            log.set_level(level.upper())
            audited.result = self._tell(
                self._chosen(None), "log-level", f"log from {level.upper()}", level=level.upper()
            )
        return audited.result

    # ---- Requests ---------------------------------------------------------------------------------------

    def _chosen(self, worker: int | None, *, all_generations: bool = False) -> list[_Worker]:
        """Return the workers that a command is for.

        Raises:
            AdminError: there is none.
        """
        workers = [each for each in _workers(self._link.ask("status")) if each.is_current or all_generations]
        chosen = [each for each in workers if worker in (None, each.slot)]
        if worker is not None and not chosen:
            raise AdminError(f"there is no worker {worker}; there are {', '.join(str(each.slot) for each in workers)}")
        return chosen

    def _ask_one(self, worker: _Worker, command: str, **arguments: object) -> None:
        try:
            ask_worker(Path(worker.folder), command, _TIMEOUT_S, **arguments)
        except OSError as error:
            raise AdminError(f"worker {worker.slot} does not answer: {error}") from error

    def _tell(self, workers: Sequence[_Worker], command: str, done: str, **arguments: object) -> str:
        """Send a command to workers, and return the result in words."""

        def ask(worker: _Worker) -> str:
            try:
                self._ask_one(worker, command, **arguments)
            except AdminError as error:
                return str(error)
            return ""

        problems = [problem for problem in self._threads.map(ask, workers) if problem]
        count = len(workers) - len(problems)
        return "; ".join([f"{count} {'worker' if count == 1 else 'workers'} {done}", *problems])


class _Audited:
    """An action that is written to the audit log at its end, with its result."""

    def __init__(self, action: str, by: str, **fields: object) -> None:
        self.result = ""
        self._action = action
        self._by = by
        self._fields = fields

    def __enter__(self) -> "_Audited":
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        result = self.result if error is None else f"failed: {error}"
        _audit(self._action, self._by, result, **self._fields)


def _audit(action: str, by: str, result: str, **fields: object) -> None:
    log.audit(action, by=by, **fields, result=result)


def _workers(status: Mapping[str, Any]) -> list[_Worker]:
    return sorted((_Worker(**each) for each in status["workers"]), key=lambda each: (each.slot, each.generation))


def _report(worker: _Worker) -> WorkerReport | None:
    if worker.state == "starting":
        return None
    try:
        return WorkerReport.from_json(ask_worker(Path(worker.folder), "report", _TIMEOUT_S))
    except (AdminError, OSError, ValueError) as error:
        event("worker-silent", logging.DEBUG, worker=worker.slot, why=str(error))
        return None


def _metrics(worker: _Worker) -> Snapshot | None:
    """Return the metrics of a worker; None if it does not answer, or its answer is damaged."""
    if worker.state == "starting":
        return None
    try:
        return Snapshot.decode(ask_worker(Path(worker.folder), "metrics", _TIMEOUT_S))
    except (AdminError, OSError, ValueError):
        return None


def _state(
    status: Mapping[str, Any], workers: Sequence[_Worker], reports: Mapping[_Worker, WorkerReport | None]
) -> str:
    if status["state"] != "serving":
        return str(status["state"])
    states = {report.state for worker in workers if worker.is_current and (report := reports[worker])}
    return "serving" if "serving" in states or not states else "draining"


def _worker_snapshot(worker: _Worker, report: WorkerReport | None, metrics: Snapshot | None) -> WorkerSnapshot:
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
        _load(metrics or Snapshot()),
    )


def _load(metrics: Snapshot) -> LoadSnapshot:
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


def _store(status: Mapping[str, Any]) -> Store:
    return Store(Path(status["cache_dir"]), status["cache_bytes"])


def _with_prefix(tokens: Iterable[bytes], prefix: str) -> list[bytes]:
    """Return the tokens that begin with hexadecimal digits.

    Raises:
        AdminError: there is none.
    """
    found = [token for token in tokens if prefix and token.hex().startswith(prefix.lower())]
    if not found:
        raise AdminError(f"no token starts with {prefix!r}")
    return found


def _cache(status: Mapping[str, Any], reports: Iterable[WorkerReport], metrics: Snapshot) -> CacheSnapshot:
    store = _store(status)
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


def _quarantine(status: Mapping[str, Any]) -> tuple[QuarantineSnapshot, ...]:
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
