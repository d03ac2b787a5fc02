"""Worker: a process that serves clients until its supervisor stops it or ends."""

import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
import threading
from dataclasses import replace
from types import TracebackType

from nnhal_driver.activity import ActivityTable
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_service import log
from nnhal_service.channel import Channel
from nnhal_service.dead_threads import end_with_threads
from nnhal_service.identity.use_ledger import UseLedger
from nnhal_service.log import event
from nnhal_service.memory_limits import available_bytes, limit_memory, thread_follower, tune_malloc
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.operating.admin.worker_control import WorkerControl
from nnhal_service.operating.admin.worker_report import WorkerReporter
from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.peers.fleet.members_file import MembersFile
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.server import Server
from nnhal_service.serving.hosting import Hosting
from nnhal_service.settings import Settings
from nnhal_service.shutdown import ShutdownSignal
from nnhal_service.supervisor.adoption import end_with
from nnhal_service.supervisor.crash import STACKS_SIGNAL
from nnhal_service.supervisor.engine.engine_launcher import EngineProcesses
from nnhal_service.supervisor.probe import Prober
from nnhal_service.supervisor.scoreboard import NO_OWNER, NOBODY, WorkerState
from nnhal_service.supervisor.template import ChildArguments
from nnhal_service.supervisor.worker_directory import WorkerDirectory, WorkerPolicy, WorkerRedirector
from nnhal_service.supervisor.worker_output import redirect_output
from nnhal_service.supervisor.worker_process import WorkerSpec
from nnhal_service.supervisor.worker_quarantine import WorkerQuarantine

HEARTBEAT_S = 0.1
"""Seconds between heartbeats."""
_MEMORY_SHARE = 0.9
"""Share of the machine's memory that the workers of all clients together may have."""
_OTHERS_BYTES = 96 * 2**20
"""Memory of the supervisor, the template and the admin process."""
_PRIVATE_PART = 4
"""A worker of one client has a quarter of the memory of one of all clients, and a probe a quarter of its worker's."""
_LEAST_BYTES = 192 * 2**20
"""Memory with which a worker or a probe can serve small models: 40 MiB for clients."""
_PRIVATE_BYTES = 24 * 2**20
"""Memory of an idle worker of one client. A quarter of the memory may go to these."""
_DESCRIPTORS = 1024
"""Descriptors from which on a worker serves some hundred clients: connections of one host may have half of them."""
_OFFENDER_NICE = 5
"""Niceness of the workers of offenders."""
_SWITCH_INTERVAL_S = 0.001
"""Time after which a thread that computes in Python leaves the interpreter lock to those that wait. Python's own is
five times as long, and a call that needs the lock ten times waits ten times beside the analysis of a large model."""


def run_worker(arguments: ChildArguments) -> None:
    """Serve until SIGTERM. The supervisor learns of the end from the exit status.

    Args:
        arguments: its message is a `WorkerSpec`. The descriptors are the file for the stacks of a crash, the pipe for
            the output of engines and plug-ins, the sockets to the processes of the cache share and of the shadow, and
            the inherited sockets, in the order of `WorkerSpec.inherited`.

    Raises:
        SystemExit: the worker cannot start. The supervisor has the reason.
    """
    spec, channel, scoreboard = WorkerSpec.model_validate(arguments.message), arguments.channel, arguments.scoreboard
    crash_log, output, share, shadow, *sockets = arguments.descriptors
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until it can stop in order; the supervisor repeats the signal
    end_with(spec.supervisor)
    faulthandler.enable(crash_log)
    faulthandler.register(STACKS_SIGNAL, crash_log)
    channel.send({"pid": os.getpid()})
    stream = redirect_output(output)
    log.configure(spec.settings.log_level, spec.settings.log_format, stream, fields={"worker": spec.slot})
    end_with_threads()
    listen = spec.addresses.listen
    enter_sandbox(spec.settings, spec.temporary, lambda: profile_of(spec.settings, listen, spec.temporary))
    tune_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _raise_descriptor_limit()
    if spec.is_offender:
        os.nice(_OFFENDER_NICE)
    owner = bytes.fromhex(spec.owner) or NO_OWNER
    status = replace(NOBODY, pid=os.getpid(), slot=spec.slot, generation=spec.generation, owner=owner)
    policy = WorkerPolicy(
        spec.settings.worker_per_identity,
        min(spec.settings.private_workers, available_bytes() // _PRIVATE_PART // _PRIVATE_BYTES),
        lambda owner: channel.send({"private": owner.hex()}),
    )
    directory = WorkerDirectory(scoreboard, spec.row, status, spec.addresses, policy)
    activities = ActivityTable(scoreboard.activities(spec.row))
    with ShutdownSignal(spec.supervisor) as shutdown, Heart(directory, activities) as heart:
        try:
            settings = _own_settings(spec)
            quarantine = WorkerQuarantine(settings.state_dir, scoreboard)
            fleet = _fleet_directory(spec, directory)
            hosting = Hosting(
                addresses=spec.addresses.listen,
                slot=spec.slot,
                redirect=WorkerRedirector(directory, fleet),
                activities=activities,
                quarantine=quarantine,
                prober=_prober(channel, settings, quarantine),
                inherited=dict(zip(spec.inherited, sockets, strict=True)),
                temporary=spec.temporary,
                metrics=WorkerMetrics(spec.generation, spec.temporary),
                claim=directory.claim,
                find_use=UseLedger(scoreboard, spec.row).use_of,
                engines=EngineProcesses(channel, quarantine, has_sandbox=spec.settings.sandbox != "off"),
                is_shared=not spec.owner,
                choices=settings.choices_file(spec.supervisor),
                share=socket.socket(fileno=share),
                shadow=socket.socket(fileno=shadow),
            )
            server = Server(settings, hosting)
            heart.server = server
            limit = limit_memory(settings.process_bytes, server.threads)
            thread_follower.start(settings.process_bytes, limit)
            server.start()
        except ValueError as error:
            channel.send({"failed": str(error)})
            raise SystemExit(1) from None
        control = _start_control(spec, server, heart)
        heart.enter(WorkerState.DRAINING if spec.drained else WorkerState.SERVING)
        channel.send({"serving": server.addresses, "backends": activities.backends})
        shutdown.wait()
        control.begin_stop()
        heart.enter(WorkerState.DRAINING)
        server.stop()
        control.close()


def _raise_descriptor_limit() -> None:
    """Take all descriptors that this process may have, and warn if they are few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # 1,000 silent connections took them all
    if most < _DESCRIPTORS:
        event("few-descriptors", logging.WARNING, limit=most, recommended=_DESCRIPTORS)


def _fleet_directory(spec: WorkerSpec, directory: WorkerDirectory) -> FleetDirectory | None:
    path = spec.settings.members_file(spec.supervisor)
    return None if path is None else FleetDirectory(MembersFile(path), lambda: directory.is_draining)


def _own_settings(spec: WorkerSpec) -> Settings:
    """Return the settings for a worker: its part of the memory, and no preloaded models if it serves one client."""
    settings = spec.settings
    process_bytes = settings.process_bytes
    if not process_bytes:
        process_bytes = int((available_bytes() - _OTHERS_BYTES) * _MEMORY_SHARE / settings.workers)
        process_bytes = _private_bytes(process_bytes) if spec.owner else max(process_bytes, _LEAST_BYTES)
    warm = 0 if spec.owner else settings.warm
    return settings.model_copy(update={"process_bytes": process_bytes, "warm": warm})


def _private_bytes(whole: int) -> int:
    """Return the memory of a worker of one client, or of a probe, given that of the worker that serves all of them."""
    return max(whole // _PRIVATE_PART, _LEAST_BYTES)


def _prober(channel: Channel, settings: Settings, quarantine: WorkerQuarantine) -> Prober | None:
    """Return the prober of a worker, if the operator wants one. A probe gets a part of the worker's memory."""
    if not settings.probe:
        return None
    process_bytes = min(settings.process_bytes, _private_bytes(settings.process_bytes))
    return Prober(channel, settings.model_copy(update={"process_bytes": process_bytes}), quarantine)


def _start_control(spec: WorkerSpec, server: Server, heart: "Heart") -> WorkerControl:
    """Start the control socket of a worker that serves."""

    def change(drained: bool) -> None:
        heart.enter(WorkerState.DRAINING if drained else WorkerState.SERVING)

    control = WorkerControl(spec.temporary, server, WorkerReporter(spec.slot, spec.generation, server), change)
    if spec.drained:
        control.drain()
    return control


class Heart:
    """Thread that reports the state of a worker regularly. A worker whose interpreter is stuck reports nothing."""

    def __init__(self, directory: WorkerDirectory, activities: ActivityTable) -> None:
        self.server: Server | None = None
        self._directory = directory
        self._activities = activities
        self._state = WorkerState.STARTING
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nnhal-heartbeat", daemon=True)

    def enter(self, state: WorkerState) -> None:
        """Enter another state, and report it at once."""
        if state is WorkerState.DRAINING and self.server is not None:
            self.server.sessions.hold_places()  # first, while they count as used
        self._state = state
        self._beat()

    def _beat(self) -> None:
        with self._lock:
            sessions = self.server.sessions.count() if self.server is not None else 0
            self._activities.publish()
            self._directory.report(self._state, now_ns(), sessions, self._activities.count)

    def _run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            self._beat()
            thread_follower.adjust()

    def __enter__(self) -> "Heart":
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
