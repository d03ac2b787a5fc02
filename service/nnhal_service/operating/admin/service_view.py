"""View of a running service for operators: its state as messages of nnhal.admin.v1, and the actions that change it.

It asks the supervisor and all workers, and puts their answers together. The gRPC service and the page show the same.
"""

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

from google.protobuf.message import DecodeError

from nnhal.admin.v1 import admin_pb2
from nnhal.cpu import available_cpus
from nnhal.version import describe_version
from nnhal_cache.errors import CacheError
from nnhal_service import log
from nnhal_service.metrics.exposition import render
from nnhal_service.metrics.pending_counts import PendingCounts
from nnhal_service.metrics.snapshot import ServiceMetrics, Snapshot
from nnhal_service.metrics.supervisor_metrics import read_totals
from nnhal_service.operating.admin.actions import AdminError, AuditedAction
from nnhal_service.operating.admin.control import ask_worker
from nnhal_service.operating.admin.known_workers import TIMEOUT_S, KnownWorker, ask, known_workers
from nnhal_service.operating.admin.recent_warnings import NO_WORKER, RecentWarnings
from nnhal_service.operating.admin.snapshots import (
    cache_snapshot,
    count_members,
    free_bytes,
    load_snapshot,
    member_snapshot,
    model_snapshots,
    open_store,
    quarantine_snapshots,
    recording_snapshot,
    service_state,
    worker_snapshot,
)
from nnhal_service.operating.admin.stacks import all_stacks
from nnhal_service.operating.admin.supervisor_link import SupervisorLink
from nnhal_service.peers.fleet.members_file import MembersFile
from nnhal_service.quarantine import QuarantineFile
from nnhal_service.recording.rules import ExecutionRules
from nnhal_service.settings import LogLevel, Settings

_ABILITIES_TIMEOUT_S = 30.0
_THREADS = 8
_MAX_WARNINGS = 100


class ServiceView:
    """A running service. Thread safe; every method may take some seconds, if a worker does not answer.

    Callers check first that `by` may administer. Every action is in the audit log, with `by` and its result, which it
    returns in words.

    Args:
        link: to the supervisor.
        members: file with the members of the fleet; None if the service belongs to none.

    Attributes:
        count: counts an event of this process, by its metric and labels.
        warnings: those of this process, if it watches the log.
    """

    def __init__(self, link: SupervisorLink, members: Path | None = None) -> None:
        self._link = link
        self._members = MembersFile(members) if members is not None else None
        self._threads = ThreadPoolExecutor(_THREADS, "nnhal-admin-ask")
        self._metrics = ServiceMetrics()
        self._counts = PendingCounts()
        self.count = self._counts.count
        self.warnings = RecentWarnings(NO_WORKER, self.count)
        self._abilities: tuple[int, Sequence[admin_pb2.AbilitySnapshot]] = (-1, ())

    def _status(self) -> Mapping[str, Any]:
        """Return the status that the supervisor reports, and pass on what this process has counted."""
        return self._link.ask("status", counts=self._counts.take())

    # ---- State ------------------------------------------------------------------------------------------

    def snapshot(self) -> admin_pb2.ServiceSnapshot:
        """Return the state."""
        status = self._status()
        workers = known_workers(status)
        ask_report = partial(ask, "report", admin_pb2.WorkerReport.FromString)
        reports = dict(zip(workers, self._threads.map(ask_report, workers), strict=True))
        metrics, by_worker = self._collect(status, workers)
        answered = [report for report in reports.values() if report is not None]
        devices = next((report.devices for worker, report in reports.items() if report and worker.is_current), ())
        table = self._members.table() if self._members is not None else None
        warnings = [admin_pb2.WarningSnapshot(**each) for each in (*status["warnings"], *self.warnings.list())]
        warnings += [warning for report in answered for warning in report.warnings]
        return admin_pb2.ServiceSnapshot(
            at=time.time(),
            version=describe_version(),
            state=service_state(status, workers, reports),
            pid=status["pid"],
            started_at=status["started_at"],
            addresses=status["addresses"],
            log_level=status["log_level"],
            load=load_snapshot(metrics),
            devices=devices,
            workers=(worker_snapshot(each, reports[each], by_worker.get(each.generation)) for each in workers),
            sessions=(session for report in answered for session in report.sessions),
            models=model_snapshots(answered, metrics),
            cache=cache_snapshot(status, answered, metrics),
            quarantine=quarantine_snapshots(status),
            warnings=sorted(warnings, key=lambda warning: warning.at)[-_MAX_WARNINGS:],
            host=socket.gethostname(),
            cpus=available_cpus(),
            free_bytes=free_bytes(),
            member=table.here if table is not None else "",
            members=map(member_snapshot, table.members) if table is not None else (),
            recording=recording_snapshot(answered),
            shadow=next((report.shadow for report in answered), None),
            last_reload=status["last_reload"],
        )

    def abilities(self) -> Sequence[admin_pb2.AbilitySnapshot]:
        """Return what the devices can do. The first call may take some seconds, if the devices must be measured.

        Raises:
            AdminError: no worker answers.
        """
        problem = "no worker is running"
        for worker in self._chosen(None):
            if worker.generation == self._abilities[0]:
                return self._abilities[1]
            try:
                answer = ask_worker(Path(worker.folder), "abilities", _ABILITIES_TIMEOUT_S)
                found = admin_pb2.WorkerAbilities.FromString(answer).abilities
            except (AdminError, OSError, DecodeError) as error:
                problem = str(error)
                continue
            self._abilities = worker.generation, found
            return found
        raise AdminError(f"no worker tells what the devices can do: {problem}")

    def settings(self) -> Sequence[admin_pb2.SettingSnapshot]:
        """Return the effective settings."""
        found = self._link.ask("settings")["settings"]
        return [admin_pb2.SettingSnapshot(name=name, value=value, origin=origin) for name, value, origin in found]

    def current_settings(self) -> Settings:
        """Return the settings, which a reload may have changed.

        Raises:
            AdminError: the supervisor does not answer.
        """
        return Settings.model_validate(self._link.ask("values")["values"])

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of all workers for Prometheus, and their content type. `accept` selects it."""
        status = self._status()
        snapshot, _ = self._collect(status, known_workers(status))
        table = self._members.table() if self._members is not None else None
        if table is not None:
            count_members(snapshot, table.members)
        return render(snapshot, accept)

    def _collect(
        self, status: Mapping[str, Any], workers: Sequence[KnownWorker]
    ) -> tuple[Snapshot, dict[int, Snapshot]]:
        """Return the metrics of the service, and those of its workers by number of their start."""
        ended = read_totals(Path(status["metrics"]))
        found = self._threads.map(partial(ask, "metrics", Snapshot.decode), workers)
        by_worker = {each.source: each for each in found if each is not None}
        return self._metrics.merge(ended, by_worker.values()), by_worker

    def stacks(self, by: str, worker: int | None = None) -> Mapping[str, str]:
        """Return the stacks of all threads, of one worker or of all, by the name of the process.

        Raises:
            AdminError: there is no such worker.
        """
        chosen = self._chosen(worker)

        def read(each: KnownWorker) -> str:
            try:
                return ask_worker(Path(each.folder), "stacks", TIMEOUT_S).decode("utf-8", "replace")
            except (AdminError, OSError) as error:
                return f"no answer: {error}\n"

        texts = self._threads.map(read, chosen)
        stacks = {f"worker {each.slot} (process {each.pid})": text for each, text in zip(chosen, texts, strict=True)}
        if worker is None:
            stacks["admin"] = all_stacks()
        log.audit("stacks", by=by, worker="all" if worker is None else worker, result=f"{len(stacks)} processes")
        return stacks

    # ---- Actions ----------------------------------------------------------------------------------------

    def drain(self, by: str, worker: int | None = None) -> str:
        """Have a worker, or all, take no more sessions, and send its clients elsewhere. What runs has its grace time.

        Raises:
            AdminError: there is no such worker.
        """
        return self._set_drained(by, "drain", worker, drained=True)

    def resume(self, by: str, worker: int | None = None) -> str:
        """Undo `drain`.

        Raises:
            AdminError: there is no such worker.
        """
        return self._set_drained(by, "resume", worker, drained=False)

    def _set_drained(self, by: str, command: str, worker: int | None, *, drained: bool) -> str:
        with AuditedAction(command, by, worker="all" if worker is None else worker) as audited:
            chosen = self._chosen(worker)
            # the supervisor first: it tells a worker that starts meanwhile
            self._link.ask("drain", slots=[each.slot for each in chosen], drained=drained)
            return audited.succeed(self._tell(chosen, command, "drained" if drained else "resumed"))

    def reload(self, by: str) -> tuple[str, Sequence[str]]:
        """Read the settings and plug-ins again, and replace the workers one by one.

        Return the result, and the names of settings that have changed and need a restart.

        Raises:
            AdminError: a setting is invalid, or the service stops.
        """
        with AuditedAction("reload", by) as audited:
            needs_restart = self._link.ask("reload")["needs_restart"]
            result = "the settings are valid; the workers are being replaced"
            if needs_restart:
                result += f"; these need a restart: {', '.join(needs_restart)}"
            return audited.succeed(result), needs_restart

    def end_session(self, by: str, session: str) -> str:
        """End a session at once, by its id in the snapshot.

        Raises:
            AdminError: there is no such session.
        """
        with AuditedAction("end-session", by, session=session) as audited:
            slot, _, rest = session.partition(".")
            generation = rest.partition(".")[0]
            for worker in self._chosen(None, all_generations=True):
                if (str(worker.slot), str(worker.generation)) == (slot, generation):
                    self._ask_one(worker, "end-session", session=session)
                    return audited.succeed(f"ended session {session}")
            raise AdminError(f"there is no session {session!r}")

    def clear_quarantine(self, by: str, digests: Sequence[str] = ()) -> str:
        """Allow models again, by the first hexadecimal digits of their digests; all models if there are none.

        Raises:
            AdminError: no digest starts with the digits, or the file cannot be written.
        """
        with AuditedAction("clear-quarantine", by, digests=",".join(digests) or "all") as audited:
            file = QuarantineFile(Path(self._status()["state_dir"]))
            try:
                count = file.clear(digests)
            except ValueError as error:
                raise AdminError(str(error)) from None
            except OSError as error:
                raise AdminError(f"cannot write the quarantine: {error}") from error
            return audited.succeed(f"cleared {count} {'model' if count == 1 else 'models'}")

    def clear_cache(self, by: str, identity: str | None = None, tokens: Sequence[str] = ()) -> str:
        """Remove entries of the cache: of one owner or of all, by the first hexadecimal digits of their tokens or all.

        Raises:
            AdminError: no token starts with the digits, or the cache cannot be used.
        """
        fields = {"identity": "all" if identity is None else identity, "tokens": ",".join(tokens) or "all"}
        with AuditedAction("clear-cache", by, **fields) as audited:
            store = open_store(self._status())
            try:
                known = [entry.token for entry in store.list(identity)] if tokens else []
                chosen = [token for prefix in tokens for token in _with_prefix(known, prefix)]
                count = store.clear(identity, chosen)
            except CacheError as error:
                raise AdminError(str(error)) from error
            return audited.succeed(f"removed {count} {'entry' if count == 1 else 'entries'}")

    def set_log_level(self, by: str, level: str) -> str:
        """Log from DEBUG, INFO, WARNING or ERROR on, in all processes, until the next start or reload.

        Raises:
            AdminError: the level is unknown.
        """
        with AuditedAction("log-level", by, to=level) as audited:
            name = level.upper()
            if name not in get_args(LogLevel):
                raise AdminError(f"invalid level {level!r}; expected {', '.join(get_args(LogLevel))}")
            self._link.ask("log-level", level=name)
            log.set_level(name)
            return audited.succeed(self._tell(self._chosen(None), "log-level", f"log from {name}", level=name))

    def set_rules(self, by: str, rules: ExecutionRules) -> str:
        """Record or repeat executions by other rules, until the next start or reload.

        Raises:
            AdminError: the share is invalid, or the service has no folder for recordings, or no shadow.
        """
        fields = asdict(rules)
        texts = {
            name: ",".join(value) or "all" if isinstance(value, tuple) else value for name, value in fields.items()
        }
        with AuditedAction(rules.kind, by, **texts) as audited:
            if not 0 <= rules.share <= 1:
                raise AdminError(f"invalid share {rules.share:g}; expected a number from 0 to 1")
            self._link.ask(rules.kind, rules=fields)
            done = f"{rules.verb} {rules.share:.4g} of the executions" if rules.share else f"stopped {rules.verb}"
            return audited.succeed(self._tell(self._chosen(None), rules.kind, done, rules=fields))

    def shared_workers(self, count: int) -> Sequence[KnownWorker]:
        """Return the workers that serve all clients, which have the numbers below `count`."""
        return [each for each in self._chosen(None) if each.slot < count and each.state == "serving"]

    # ---- Requests ---------------------------------------------------------------------------------------

    def _chosen(self, worker: int | None, *, all_generations: bool = False) -> list[KnownWorker]:
        """Return the workers that a command is for."""
        workers = [each for each in known_workers(self._status()) if each.is_current or all_generations]
        chosen = [each for each in workers if worker in (None, each.slot)]
        if worker is not None and not chosen:
            raise AdminError(f"there is no worker {worker}; there are {', '.join(str(each.slot) for each in workers)}")
        return chosen

    def _ask_one(self, worker: KnownWorker, command: str, **arguments: object) -> None:
        try:
            ask_worker(Path(worker.folder), command, TIMEOUT_S, **arguments)
        except OSError as error:
            raise AdminError(f"worker {worker.slot} does not answer: {error}") from error

    def _tell(self, workers: Sequence[KnownWorker], command: str, done: str, **arguments: object) -> str:
        """Send a command to workers, and return the result in words."""

        def tell(worker: KnownWorker) -> str:
            try:
                self._ask_one(worker, command, **arguments)
            except AdminError as error:
                return str(error)
            return ""

        problems = [problem for problem in self._threads.map(tell, workers) if problem]
        count = len(workers) - len(problems)
        return "; ".join([f"{count} {'worker' if count == 1 else 'workers'} {done}", *problems])


def _with_prefix(tokens: Iterable[bytes], prefix: str) -> list[bytes]:
    """Return the tokens that begin with hexadecimal digits."""
    found = [token for token in tokens if prefix and token.hex().startswith(prefix.lower())]
    if not found:
        raise AdminError(f"no token starts with {prefix!r}")
    return found
