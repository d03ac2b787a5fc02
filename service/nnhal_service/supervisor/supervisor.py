"""Supervisor: starts the workers of a service, watches them, replaces them, and ends with them."""

import logging
import os
import selectors
import signal
import socket
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from nnhal_driver.activity import Activity
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_service import log
from nnhal_service.channel import Channel, Message
from nnhal_service.identity.key_fetcher import KeyFetcher
from nnhal_service.log import event
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.recent_warnings import NO_WORKER, RecentWarnings
from nnhal_service.operating.running_services import ServiceFile
from nnhal_service.quarantine import Crash, QuarantineFile
from nnhal_service.recording.rules import RULES
from nnhal_service.sandbox.system_calls import process_control
from nnhal_service.settings import Settings
from nnhal_service.shutdown import SignalPipe
from nnhal_service.supervisor.addresses import ReservedAddresses
from nnhal_service.supervisor.admin.admin_listener import AdminListener
from nnhal_service.supervisor.admin.admin_process import AdminProcess
from nnhal_service.supervisor.child_process import ChildProcess
from nnhal_service.supervisor.crash import describe_status, find_suspects, is_crash
from nnhal_service.supervisor.mirror.mirror_process import MirrorProcess
from nnhal_service.supervisor.restarts import MAX_FAILED_STARTS, WorkerSlot
from nnhal_service.supervisor.scoreboard import MAX_WORKERS, ROWS, SLOTS, Scoreboard
from nnhal_service.supervisor.service_manager import ServiceManager
from nnhal_service.supervisor.shadow.shadow_process import ShadowProcess
from nnhal_service.supervisor.share.share_process import FLUSH_S, ShareProcess
from nnhal_service.supervisor.template import ChildKind, Template
from nnhal_service.supervisor.watchdog import find_hang
from nnhal_service.supervisor.worker_output import WorkerOutput
from nnhal_service.supervisor.worker_process import WorkerProcess, WorkerSpec
from nnhal_service.tls.failed_handshakes import FailedHandshakes
from nnhal_service.tls.grpc_trace import HandshakeTrace

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_STOPS = {signal.SIGINT, signal.SIGTERM}
_TICK_S = 0.1
"""Seconds between two looks at the workers."""
_KILL_S = 1.0
"""Seconds after the grace time at which a worker that stops is killed."""
_START_TIMEOUT_S = 60.0
"""Seconds that a worker may take to start."""
_FORK_TIMEOUT_S = 2.0
"""Seconds after which a worker whose process has ended before its first message is given up."""
_ARRIVAL_S = 5.0
"""Seconds within which the client of a worker of its own opens a session."""
_IDLE_S = 1.0
"""Seconds without a session after which such a worker is stopped."""
_LATE_S = 1.0
"""Delay of the supervisor itself from which it does not believe in old heartbeats."""
_FIXED = ("listen", "workers", "worker_per_identity", "insecure", "admin_listen", "http_listen")
"""Settings that a reload cannot change."""
_PR_SET_CHILD_SUBREAPER = 36

Announce = Callable[[Sequence[str]], None]
DescribeSettings = Callable[[Settings], Sequence[tuple[str, str, str]]]
"""Returns name, value and origin of each setting."""


class Supervisor:
    """Supervisor of one service. For a process with one thread that does not use gRPC.

    Args:
        reload: returns the settings anew, for SIGHUP; raises ValueError if they are invalid.
        sockets: sockets that a service manager has opened, by address; `settings` contain these addresses.
        describe: describes the effective settings to operators.

    Raises:
        ValueError: an address is in use, cannot be bound, or is reachable from other machines without `insecure`.
    """

    def __init__(
        self,
        settings: Settings,
        reload: Callable[[], Settings],
        scoreboard: Scoreboard,
        template: Template,
        sockets: Mapping[str, socket.socket],
        describe: DescribeSettings,
    ) -> None:
        self._settings = settings
        self._reload_settings = reload
        self._scoreboard = scoreboard
        self._template = template
        settings.check_exposure()
        settings.check_models()
        self._addresses = ReservedAddresses(settings.listen, settings.workers, sockets)
        self._sockets = sockets
        self._manager = ServiceManager()
        self._keys = _key_fetcher(settings)
        self._workers: list[WorkerProcess] = []
        self._metrics = SupervisorMetrics()
        self._handshakes = cache(lambda port: FailedHandshakes(port, self._metrics.count))
        self._share = ShareProcess(self._metrics)
        self._shadow = ShadowProcess(self._metrics)
        self._mirror = MirrorProcess()
        self._slots: defaultdict[int, WorkerSlot] = defaultdict(WorkerSlot)
        self._reloading: deque[int] = deque()
        self._last_reload = ""
        self._generation = 0
        self._announced = False
        self._stopping = False
        self._failure: Exception | None = None
        self._service_file: ServiceFile | None = None
        self._describe_settings = describe
        self._started_at = time.time()
        self._warnings = RecentWarnings(NO_WORKER, self._metrics.count)
        log.watch(self._warnings)
        self._admin_listener = AdminListener(settings, self._addresses.shared)
        self._admin = AdminProcess(self._admin_listener, self._answer, self._metrics.file.parent)
        self._children: tuple[ChildProcess, ...] = self._admin, self._share, self._shadow, self._mirror
        self._watched_at = time.monotonic()

    def run(self, announce: Announce) -> None:
        """Serve until SIGINT or SIGTERM. Announce the addresses when all workers serve.

        Raises:
            ValueError: a worker cannot start.
            ImportError: a package is missing.
        """
        process_control(_PR_SET_CHILD_SUBREAPER, 1)
        self._forget_choices()  # of a process that had the same id
        try:
            with SignalPipe(_SIGNALS) as signals, selectors.DefaultSelector() as selector:
                self._selector = selector
                selector.register(signals, selectors.EVENT_READ)
                for slot in range(self._settings.workers):
                    self._start(slot)
                while self._workers or not self._stopping:
                    self._step(signals, announce)
                self._share.stop()
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure
        event("stopped")

    def _forget_choices(self) -> None:
        with suppress(OSError):
            self._settings.choices_file(os.getpid()).unlink(missing_ok=True)

    def _close(self) -> None:
        self._forget_choices()
        for worker in self._workers:  # only after an error of the supervisor
            worker.send_signal(signal.SIGKILL)
        self._admin.close()
        self._share.close()
        self._shadow.close()
        self._mirror.close()
        self._template.close()
        self._metrics.close()
        self._keys.close()
        self._addresses.close()
        self._manager.close()
        if self._service_file is not None:
            self._service_file.close()

    def _write_service_file(self) -> None:
        try:
            self._service_file = ServiceFile(
                self._settings.state_dir, self._addresses.shared, self._admin_listener.address
            )
        except OSError as error:
            event("service-file-not-written", logging.WARNING, why=str(error))

    # ---- The loop ---------------------------------------------------------------------------------------

    def _step(self, signals: SignalPipe, announce: Announce) -> None:
        """Wait for something to happen, at most until the next look at the workers, and handle it."""
        for key, _ in self._selector.select(_TICK_S):
            if isinstance(key.data, WorkerProcess):
                self._receive(key.data)
            elif isinstance(key.data, WorkerOutput):
                if not key.data.read():
                    self._selector.unregister(key.data)
            elif isinstance(key.data, ChildProcess) and not key.data.receive():
                self._handle_child_end(key.data, describe_status(key.data.end()) if key.data.pid else "never started")
        self._manager.keep_alive()
        self._keys.step()
        for number in signals.read():
            self._handle(signal.Signals(number))
        self._reap()
        self._watch()
        self._stop_idle()
        self._lead_clients()
        self._metrics.show_workers(Counter(worker.state for worker in self._workers))
        if self._stopping:
            return
        self._start_due()
        if self._announced:  # not before: they must not delay the workers
            self._start_children()
        elif sum(worker.is_serving for worker in self._workers if not worker.spec.owner) == self._settings.workers:
            self._announced = True
            self._write_service_file()
            announce(self._addresses.shared)
            self._manager.ready()
        self._show_status()

    def _start_children(self) -> None:
        """Start the processes besides the workers that should run and do not."""
        for child in self._children:
            if child.is_due(self._settings):
                child.start(self._template, self._worker_settings())
                if child.channel is not None:
                    self._selector.register(child.channel, selectors.EVENT_READ, child)
                if child.output is not None:
                    self._read_output(child.output, "admin" if child is self._admin else "")

    def _show_status(self) -> None:
        serving = [worker for worker in self._workers if worker.is_serving]
        sessions = sum(worker.status.sessions for worker in serving)
        self._manager.show_status(f"workers that serve: {len(serving)}, sessions: {sessions}")

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP and not self._stopping:
            with suppress(ValueError):  # the log has the reason
                self._reload()
        elif number in _STOPS and not self._stopping:
            event("stopping", workers=len(self._workers))
            self._stop()
        elif number in _STOPS:
            for worker in self._workers:
                worker.send_signal(signal.SIGKILL)

    def _receive(self, worker: WorkerProcess) -> None:
        """Handle a message of a worker, or the end of its channel."""
        received = worker.channel.receive()
        if received is None:
            self._selector.unregister(worker.channel)
            worker.is_gone = worker.pid == 0
            return
        message, descriptors = received
        match message:
            case {"probe": _}:
                self._template.fork(ChildKind.PROBE, message, descriptors)
            case {"engine": engine}:
                self._template.fork(ChildKind.ENGINE, engine, descriptors)
            case {"pid": pid}:
                worker.pid = pid
            case {"private": owner}:
                self._start_private(owner)
            case {"failed": reason}:
                worker.failure = reason
            case {"backends": backends}:
                self._note_serving(worker, backends)
        for descriptor in descriptors:
            os.close(descriptor)

    def _note_serving(self, worker: WorkerProcess, backends: list[str]) -> None:
        worker.served_at = time.monotonic()
        worker.backends = backends
        self._metrics.add_backends(backends)
        event("worker-started", worker=worker.spec.slot, pid=worker.pid)
        self._slots[worker.spec.slot].policy.note_serving()
        self._lead_clients()  # before its predecessor stops
        for predecessor in self._others_of(worker):
            if predecessor.stop_by is None:
                predecessor.stop(self._settings.stop_grace_s + _KILL_S)

    def _lead_clients(self) -> None:
        open_slots = [worker.spec.slot for worker in self._workers if worker.is_open and not worker.spec.owner]
        self._addresses.lead_to(open_slots)

    # ---- Start ------------------------------------------------------------------------------------------

    def _start(self, slot: int, owner: str = "") -> None:
        self._generation += 1
        used = {worker.spec.row for worker in self._workers}
        row = next(row for row in range(ROWS) if row not in used)
        addresses = self._addresses.of_worker(slot)
        self._scoreboard.set_port(slot, addresses.port)
        spec = WorkerSpec(
            slot=slot,
            row=row,
            generation=self._generation,
            supervisor=os.getpid(),
            temporary=Path(tempfile.mkdtemp(prefix="nnhal-")),
            settings=self._worker_settings(),
            addresses=addresses,
            inherited=tuple(self._sockets),
            drained=self._slots[slot].is_drained,
            owner=owner,
            is_offender=self._scoreboard.offenders.wait_s(bytes.fromhex(owner)) is not None,
        )
        sockets = [each.fileno() for each in self._sockets.values()]
        requests = self._share.packets.fileno(), self._shadow.packets.fileno()
        worker = WorkerProcess(spec, self._scoreboard, self._template, requests, sockets)
        self._workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        self._read_output(worker.output, "grpc")

    def _read_output(self, output: WorkerOutput, port: str) -> None:
        """Begin to read the output of a process, which traces the handshakes of a port, or of none, if there is TLS."""
        if self._settings.tls_cert is not None:
            output.trace = HandshakeTrace(self._handshakes(port).note if port else lambda *_: None)
        self._selector.register(output, selectors.EVENT_READ, output)

    def _start_private(self, owner: str) -> None:
        """Start a worker for one client, unless it has one."""
        workers = [worker for worker in self._workers if worker.spec.owner]
        is_known = any(worker.spec.owner == owner and worker.stop_by is None for worker in workers)
        if self._stopping or is_known or len(workers) >= self._settings.private_workers:
            return
        used = {worker.spec.slot for worker in workers}
        try:
            self._start(next(slot for slot in range(MAX_WORKERS, SLOTS) if slot not in used), owner)
        except (OSError, ValueError) as error:
            event("private-worker-not-started", logging.ERROR, why=str(error))

    def _stop_idle(self) -> None:
        """Stop the workers whose client has no more sessions. Nothing of them may stay in memory."""
        now = time.monotonic()
        for worker in self._workers:
            if not worker.spec.owner or not worker.is_serving:
                continue
            if worker.status.sessions or not worker.used_at:
                # its client has not arrived yet
                worker.used_at = now + (0.0 if worker.status.sessions else _ARRIVAL_S)
            elif now > worker.used_at + _IDLE_S:
                worker.stop(self._settings.stop_grace_s + _KILL_S)

    def _worker_settings(self) -> Settings:
        """Return the settings for processes that cannot fetch the keys of an issuer themselves."""
        return self._settings.model_copy(update={"jwt_keys": self._keys.path}) if self._keys.path else self._settings

    def _start_due(self) -> None:
        for number, slot in self._slots.items():
            if slot.restart_at is not None and time.monotonic() >= slot.restart_at:
                slot.restart_at = None
                self._start(number)

    # ---- Reload -----------------------------------------------------------------------------------------

    def _reload(self) -> Sequence[str]:
        """Read the settings again, and replace the workers one by one. Return the settings that need a restart.

        Raises:
            ValueError: the settings are invalid.
        """
        self._manager.reloading()
        self._last_reload = ""
        fixed = {name: getattr(self._settings, name) for name in _FIXED}
        try:
            changed = self._reload_settings()
            settings = changed.model_copy(update=fixed)
            settings.check_exposure()  # of the addresses that stay
        except ValueError as error:
            self._note_failed_reload(str(error))
            raise
        needs_restart = [name for name, value in fixed.items() if getattr(changed, name) != value]
        for name in needs_restart:
            event("reload-needs-restart", logging.WARNING, setting=name)
        self._settings = settings
        if self._keys.source != (self._settings.jwt_keys or ""):
            self._keys.close()
            self._keys = _key_fetcher(self._settings)
        event("reloading", workers=self._settings.workers)
        for worker in self._workers:
            if worker.spec.owner and worker.stop_by is None:  # its client gets one with the new settings
                worker.stop(settings.stop_grace_s + _KILL_S)
        self._reloading = deque(range(self._settings.workers))
        self._replace_next()
        return needs_restart

    def _note_failed_reload(self, why: str) -> None:
        self._last_reload = why
        event("reload-failed", logging.ERROR, why=why)
        self._manager.ready()

    def _replace_next(self) -> None:
        """Start the successor of the next worker to replace."""
        while self._reloading:
            slot = self._reloading.popleft()
            if self._slots[slot].restart_at is None:  # that one will start with the new settings anyway
                self._start(slot)
                return
        self._last_reload = "reloaded"
        event("reloaded")
        for child in self._children:
            child.replace()
        self._manager.ready()

    def _others_of(self, worker: WorkerProcess) -> list[WorkerProcess]:
        """Return the other workers of the same slot: a predecessor that drains, or a successor."""
        return [each for each in self._workers if each.spec.slot == worker.spec.slot and each is not worker]

    # ---- Exits ------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Handle the ends of child processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._template.pid:
                self._replace_template(status)
            elif child := next((each for each in self._children if each.pid == pid), None):
                self._handle_child_end(child, describe_status(status))
            elif worker := self._find(pid):
                self._handle_worker_end(worker, describe_status(status), crashed=is_crash(status))

    def _handle_child_end(self, child: ChildProcess, how: str) -> None:
        """Clean up after a process, which is started again soon."""
        self._unregister(child.channel, child.output)
        child.note_end(how)

    def _find(self, pid: int) -> WorkerProcess | None:
        """Return the worker with a process. The last messages of an ended process may not have been read yet."""
        for worker in list(self._workers):
            while worker.channel.poll() and self._is_registered(worker.channel):
                self._receive(worker)
            if worker.pid == pid:
                return worker
        return None

    def _is_registered(self, end: Channel | WorkerOutput) -> bool:
        return any(key.fileobj is end for key in self._selector.get_map().values())

    def _unregister(self, *ends: Channel | WorkerOutput | None) -> None:
        for end in ends:
            if end is not None and self._is_registered(end):
                self._selector.unregister(end)

    def _replace_template(self, status: int) -> None:
        if (failure := self._template.failure()) is not None and not self._stopping:
            self._fail(failure)
        self._template.close()
        if not self._stopping:
            event("template-ended", logging.ERROR, how=describe_status(status))
            self._template = Template(self._scoreboard, traces_handshakes=self._settings.tls_cert is not None)
        self._give_up_failed_forks()

    def _give_up_failed_forks(self) -> None:
        """Give up the workers that the template has not forked, because it has ended."""
        for worker in [worker for worker in self._workers if worker.is_gone]:
            self._handle_worker_end(worker, "never started", crashed=True)

    def _handle_worker_end(self, worker: WorkerProcess, how: str, *, crashed: bool) -> None:
        """Clean up after a worker that has ended, and start another one if it was not told to end."""
        self._report_end(worker, how, crashed=crashed)
        self._workers.remove(worker)
        self._unregister(worker.channel, worker.output)
        self._metrics.add_ended_worker(
            worker.spec.generation, worker.spec.temporary, self._restart_reason(worker, crashed=crashed)
        )
        worker.close()
        if worker.spec.owner:
            del self._slots[worker.spec.slot]  # the next one there is for another client
        if self._stopping or worker.spec.owner:
            return
        if worker.stop_by is not None:  # its successor serves
            self._replace_next()
        elif self._others_of(worker):  # a successor that failed, whose predecessor goes on
            self._note_failed_reload(worker.failure or how)
            self._reloading.clear()
        else:
            self._schedule_restart(worker, crashed=crashed)

    def _restart_reason(self, worker: WorkerProcess, *, crashed: bool) -> str:
        """Return why a worker that has ended is replaced, as a label; "" if it is not."""
        if self._stopping:
            return ""
        if worker.killed_because:
            return "hang"
        if worker.stop_by is not None:
            return "" if worker.spec.owner else "reload"
        return "start" if worker.failure else "crash" if crashed else "exit"

    def _schedule_restart(self, worker: WorkerProcess, *, crashed: bool) -> None:
        slot = self._slots[worker.spec.slot]
        served_s = None if worker.served_at is None else time.monotonic() - worker.served_at
        is_failure = crashed or bool(worker.killed_because)
        has_culprit = any(activity.digest for activity in worker.culprits)
        delay = slot.policy.delay(served_s, unexplained=is_failure and not has_culprit)
        if worker.failure and not self._announced:
            self._fail(ValueError(worker.failure))
        elif slot.policy.has_failed_too_often:
            reason = worker.failure or "see the log"
            text = f"worker {worker.spec.slot} failed to start {MAX_FAILED_STARTS} times in a row: {reason}"
            self._fail(ValueError(text))
        else:
            slot.restart_at = time.monotonic() + delay

    def _report_end(self, worker: WorkerProcess, how: str, *, crashed: bool) -> None:
        slot = worker.spec.slot
        if (worker.failure or self._failure is not None) and not self._announced:
            return  # the caller gets the reason
        if worker.stop_by is not None and not crashed and not worker.killed_because:
            event("worker-stopped", worker=slot, pid=worker.pid)
            return
        how = f"{how}: {worker.killed_because}" if worker.killed_because else how
        self._slots[slot].restarts += 1
        self._slots[slot].last_end = how
        event("worker-died", logging.ERROR, worker=slot, pid=worker.pid, how=how, why=worker.failure or "-")
        crash_log = worker.crash_log()
        for line in crash_log.splitlines():
            event("worker-stack", logging.ERROR, worker=slot, line=line)
        if crashed or worker.culprits:
            worker.culprits = worker.culprits or find_suspects(worker.activities(), crash_log)
            self._record_suspects(worker, worker.culprits, how)

    def _record_suspects(self, worker: WorkerProcess, suspects: Sequence[Activity], how: str) -> None:
        """Name the models that may have caused the death of a worker, and remember them."""
        for client in {activity.client for activity in suspects if activity.client}:
            offences = self._scoreboard.offenders.add(client)
            event("offender", logging.WARNING, worker=worker.spec.slot, client=client.hex(), offences=offences)
        known = {activity.digest for activity in suspects if activity.digest}
        for activity in suspects:
            fields = {"digest": activity.digest.hex() or "-", "backend": activity.backend or "-"}
            event("suspect-model", logging.ERROR, worker=worker.spec.slot, stage=activity.stage.name, **fields)
            self._metrics.count_suspect(activity.backend)
        for activity in {activity.digest: activity for activity in suspects if activity.digest}.values():
            crash = Crash(activity.backend, time.time(), how, sure=len(known) == 1)
            try:
                QuarantineFile(self._settings.state_dir).record(activity.digest, crash)
            except OSError as error:
                event("quarantine-not-written", logging.ERROR, why=str(error))

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._stop()

    def _stop(self) -> None:
        self._stopping = True
        self._manager.stopping(self._settings.stop_grace_s + 2 * _KILL_S + self._settings.uses_cache_share * FLUSH_S)
        for slot in self._slots.values():
            slot.restart_at = None
        for worker in self._workers:
            worker.stop(self._settings.stop_grace_s + _KILL_S)

    # ---- Watch ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Kill the workers that hang, or do not stop in time."""
        now = time.monotonic()
        late_s, self._watched_at = now - self._watched_at, now
        heartbeat_ns = int(self._settings.heartbeat_timeout_s * 1e9)
        if any(worker.is_gone and now - worker.started_at > _FORK_TIMEOUT_S for worker in self._workers):
            self._give_up_failed_forks()
        for worker in self._workers:
            if not worker.pid:
                continue
            if worker.killed_because:
                worker.kill_if_due()
            elif worker.stop_by is not None:
                if now > worker.stop_by:
                    worker.schedule_kill("it did not stop in time", [])
                elif worker.served_at is None:
                    worker.send_signal(signal.SIGTERM)  # it ignores the signal until it can stop in order
            elif worker.served_at is None and now - worker.started_at > _START_TIMEOUT_S:
                worker.schedule_kill("it did not start in time", [])
            elif late_s < _LATE_S:  # else this process has not run either, and heartbeats may be old
                hang = find_hang(worker.status, worker.activities(), heartbeat_ns, now_ns())
                if hang is not None:
                    worker.schedule_kill(hang.reason, [hang.activity] if hang.activity else worker.activities())

    # ---- Administration ---------------------------------------------------------------------------------

    def _answer(self, request: Message) -> Mapping[str, Any]:
        """Answer a request of the admin process."""
        match request["request"]:
            case "status":
                self._metrics.add_process(request["counts"], {})
                return self._status()
            case "settings":
                return {"settings": list(self._describe_settings(self._settings))}
            case "values":
                return {"values": self._settings.model_dump(mode="json", exclude_unset=True)}
            case "reload":
                if self._stopping:
                    raise AdminError("the service is stopping")
                try:
                    return {"needs_restart": list(self._reload())}
                except ValueError as error:
                    raise AdminError(str(error)) from None
            case "drain":
                for slot in request["slots"]:
                    self._slots[slot].is_drained = request["drained"]
            case "log-level":
                log.set_level(request["level"])
                self._settings = self._settings.model_copy(update={"log_level": request["level"]})
            case "record" | "shadow" as kind:
                if getattr(self._settings, kind) is None:
                    raise AdminError(RULES[kind].missing)
                rules = RULES[kind].read(request["rules"])
                self._settings = self._settings.model_copy(update=rules.settings)
            case unknown:
                raise AdminError(f"the supervisor does not know {unknown!r}")
        return {}

    def _status(self) -> Mapping[str, Any]:
        is_reloading = bool(self._reloading) or any(self._others_of(worker) for worker in self._workers)
        state = "reloading" if is_reloading else "serving" if self._announced else "starting"
        settings = self._settings
        return {
            "state": "stopping" if self._stopping else state,
            "last_reload": self._last_reload,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "addresses": self._addresses.shared,
            "log_level": settings.log_level,
            "cache_dir": str(settings.cache_dir),
            "cache_bytes": settings.cache_bytes,
            "state_dir": str(settings.state_dir),
            "metrics": str(self._metrics.file),
            "warnings": self._warnings.list(),
            "workers": [
                {
                    "slot": worker.spec.slot,
                    "generation": worker.spec.generation,
                    "pid": worker.pid,
                    "state": worker.state,
                    "started_at": time.time() - (time.monotonic() - worker.started_at),
                    "restarts": self._slots[worker.spec.slot].restarts,
                    "last_end": self._slots[worker.spec.slot].last_end,
                    "folder": str(worker.spec.temporary),
                }
                for worker in self._workers
            ],
        }


def _key_fetcher(settings: Settings) -> KeyFetcher:
    return KeyFetcher(settings.jwt_keys or "", (settings.log_level, settings.log_format))
