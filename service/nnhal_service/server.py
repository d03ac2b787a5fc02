"""The gRPC server of a service: it owns the devices, the sessions and the threads."""

import faulthandler
import gc
import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from nnhal.inference import open_inference_pb2
from nnhal.inference.open_inference_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from nnhal.services import SERVICES
from nnhal_cache.store import Store
from nnhal_driver.mapped_memory import trim_memory
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.grpc_support.handlers import HandlerRegistrar
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.identity.identity import REPOSITORY
from nnhal_service.log import event
from nnhal_service.memory_limits import client_bytes, limit_memory
from nnhal_service.metrics.calls import Tracer
from nnhal_service.model_cache.cache_arguments import CacheArguments
from nnhal_service.model_cache.preloader import ModelPreloader
from nnhal_service.model_cache.seal_key import load_key
from nnhal_service.open_inference.guests import Guests
from nnhal_service.open_inference.statistics import ModelStatistics
from nnhal_service.peers.cache_share.client import ShareClient
from nnhal_service.peers.fleet.member_news import MemberNews
from nnhal_service.recording.recorder import Recorder
from nnhal_service.recording.shadow.sender import ShadowSender
from nnhal_service.repository.model_folder import ModelFolder
from nnhal_service.repository.model_loader import ModelLoader
from nnhal_service.repository.pushed_files import PushedFiles
from nnhal_service.repository.repository import Repository
from nnhal_service.repository.shared_choices import SharedChoices
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.buffer import BufferServicer
from nnhal_service.rpc.burst import REJECTING_THREADS, BurstServicer
from nnhal_service.rpc.cache import CacheServicer
from nnhal_service.rpc.device import DeviceServicer
from nnhal_service.rpc.execution import ExecutionServicer
from nnhal_service.rpc.fence import FenceServicer
from nnhal_service.rpc.forwarded_inference import ForwardedInferenceServicer, private_server
from nnhal_service.rpc.inference import InferenceHost, InferenceServicer
from nnhal_service.rpc.memory import MemoryServicer
from nnhal_service.rpc.models import ModelsServicer
from nnhal_service.rpc.prepared_model import PreparedModelServicer
from nnhal_service.rpc.session import SessionServicer
from nnhal_service.serving.client_authentication import create_authentication
from nnhal_service.serving.devices import Devices, create_devices
from nnhal_service.serving.endpoints import Endpoints
from nnhal_service.serving.gauges import Gauges, collect_credentials
from nnhal_service.serving.hosting import Hosting
from nnhal_service.serving.thread_pools import ThreadPools
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.message_limits import count_elements
from nnhal_service.sessions.session import STOPPING, Session
from nnhal_service.sessions.session_registry import SessionRegistry
from nnhal_service.settings import Settings
from nnhal_service.shm.listener import UNAUTHENTICATED, DataSocket
from nnhal_service.shutdown import ShutdownSignal

TRIM_DELAY_NS = 10**9
"""Time after the end of the last session until unused memory is returned to the system."""
LAST_CALLS_S = 0.1
"""Seconds for which a service that stops still answers new calls, with the reason. gRPC would only cancel them."""
ABORT_S, CUT_OFF_S = 0.15, 0.3
"""Seconds after the grace time until executions are aborted that ignore their end, and until gRPC cancels all calls."""
STOP_TIMEOUT_S = 20
"""Seconds after the grace time when a stop counts as hanging: the process logs the stacks of all threads and exits."""
CONNECTION_CALLS = 2048
"""Calls of one connection at once: more than the limits of a session allow. A client keeps further ones back."""
CONNECTIONS_SHARE = 2
"""Part of the descriptors of the process (one half) that the connections of one address may have."""
HANDSHAKE_MS = 10_000
"""Time until a connection must have greeted, and with TLS, finished its handshake."""
PENDING_CALLS = 2 * CONNECTION_CALLS
"""Calls that wait for Python's thread, from which on gRPC rejects others at random. One connection cannot fill this."""

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
_NAMES = [service.descriptor.full_name for service in SERVICES.values()]
_DEVICE = SERVICES["Device"].descriptor.full_name
"""Its health becomes SERVING when the preloaded models are prepared; the other services are SERVING at once."""


class Server:
    """One service. Call `start`, then `stop`; or use it as a context manager.

    Args:
        hosting: what the supervisor of a worker provides; None if the service has no supervisor.

    Attributes:
        addresses: the addresses with their real ports, after `start`.
        repository: the models by name; None if the operator has none.
        sessions, store, quota, quarantine, reports, recorder: the sessions, the cache, the memory of clients, the
            models in quarantine, the candidates for backends by name of the device, and the recorder; for operators.

    Raises:
        ValueError: an address is invalid, or reachable from other machines without `insecure`; a backend or a limit is
            unknown.
    """

    def __init__(self, settings: Settings, hosting: Hosting | None = None) -> None:
        settings.check_exposure()
        self.settings = settings
        self._hosting = hosting = hosting or Hosting()
        self.metrics, self.quarantine = hosting.metrics, hosting.quarantine
        self.addresses: tuple[str, ...] = ()
        self._drained = self._is_warm = False
        self._endpoints = Endpoints(settings, hosting)
        self._limits = Limits(settings.limits)
        self.store = Store(settings.cache_dir, settings.cache_bytes)
        key, cache_unusable = load_key(settings, self.store)
        self._share = None if cache_unusable or key is None else _share_client(settings, hosting, key)
        self._devices, self.reports = create_devices(settings, self._limits, hosting, key, cache_unusable)
        self.devices = Devices(self._devices)
        with ExitStack() as undo:
            undo.callback(self._close_devices)
            self._authentication = create_authentication(settings, self.metrics.count, hosting.find_use)
            self._tracer = _start_tracer(settings, hosting) if settings.tracing else None
            undo.pop_all()
        self.metrics.calls.tracer = self._tracer
        self._preloader = ModelPreloader(self.store, self._devices, settings.warm)
        suffix = bytes([hosting.slot]) if hosting.is_supervised else b""
        self.sessions = SessionRegistry(
            settings.session_grace_s, self._limits, self._schedule_trim, suffix, self._authentication, hosting.claim
        )
        self._timers = Timers("nnhal-waits")
        self._pools = ThreadPools(settings, self._limits["burst_streams"] + REJECTING_THREADS, self._timers)
        self._limits.lower("session_calls", settings.threads * 3 // 4)
        self._health = health.HealthServicer(experimental_non_blocking=True)
        options = _options(settings, self._limits, share_ports=hosting.is_supervised)
        self._server = grpc.server(self._pools.calls, options=options)
        has_http = hosting.is_shared and settings.models is not None and settings.http_listen is not None
        self._http_server = private_server(hosting.temporary, self._pools.calls, options) if has_http else None
        self.quota = MemoryQuota(self._limits)
        users = {os.getuid(), *settings.data_users}
        cache_arguments = CacheArguments(self.store, self._limits, self._share)
        self.repository = self._create_repository(settings.models_folder, cache_arguments)
        versions = {report.id: report.version for reports in self.reports.values() for report in reports if report.id}
        self.recorder = Recorder(settings, versions, _shadow_sender(settings, hosting))
        parts = ServiceParts(self.sessions, self._limits, self.quota, self.metrics.calls, self.recorder)
        self._data_socket = DataSocket(parts, users, self.metrics.count_error)
        inference = open_inference_pb2.DESCRIPTOR.services_by_name.values() if self.repository is not None else ()
        self._names = [*_NAMES, *(service.full_name for service in inference)]
        self._register(parts, cache_arguments)

    def _create_repository(self, folder: Path | None, cache: CacheArguments) -> Repository | None:
        """Return the models by name, if the operator has a folder of them."""
        if folder is None:
            return None
        hosting, owner = self._hosting, Session("models", REPOSITORY, self._limits)
        loader = ModelLoader(ModelFolder(folder), self.devices, cache, self.quota, owner)
        loads_ahead = hosting.is_shared or not hosting.is_supervised  # a worker of one client needs few of them
        return Repository(loader, SharedChoices(hosting.choices), self.settings.models_poll_s, loads_ahead=loads_ahead)

    def _pushed_files(self) -> PushedFiles | str:
        """Return the files that clients may push, or why they may not."""
        if self.repository is not None and self.settings.models_push:
            return PushedFiles(self.repository)
        if self.settings.models_url is not None:
            return f"the service copies its models from {self.settings.models_url}; put models there"
        return "the service takes no models; its operator can allow it with --models-push"

    def _register(self, parts: ServiceParts, cache_arguments: CacheArguments) -> None:
        """Add all services to the gRPC server."""
        sessions, limits, quota = parts.sessions, parts.limits, parts.quota
        executor, watchdogs, redirect = self._pools.calls, self._pools.watchdogs, self._hosting.redirect
        devices = self.devices
        unread = UnreadResponses(sessions, quota, self.settings.transfer_idle_s, self._timers)
        gauges = Gauges(sessions, limits, quota, self.store, self._devices, self.quarantine)
        self.metrics.collect_with(gauges.collect)
        self.metrics.collect_with(partial(collect_credentials, self._authentication, self._endpoints.certificates))
        if self.repository is not None:
            self.metrics.collect_with(self.repository.collect)
        news = MemberNews(redirect.members, self._timers, executor) if redirect is not None else None
        burst_servicer = BurstServicer(parts, unread, self.metrics.count_error)
        self._end_unbound_streams = burst_servicer.end_unbound_streams
        servicers: dict[str, Any] = {
            "Session": SessionServicer(parts, executor, self._data_socket.name, redirect, news),
            "Device": DeviceServicer(
                parts,
                devices,
                executor,
                self.reports,
                cache_arguments,
                self._preloader,
                self.quarantine,
                self.metrics,
            ),
            "PreparedModel": PreparedModelServicer(parts, unread),
            "Execution": ExecutionServicer(parts),
            "Burst": burst_servicer,
            "Buffer": BufferServicer(parts),
            "Fence": FenceServicer(parts, executor, self._timers),
            "MemoryService": MemoryServicer(parts, watchdogs["transfers"]),
            "Models": ModelsServicer(parts, self.repository, self._pushed_files(), self.metrics),
            "Cache": CacheServicer(parts, self.store, devices, cache_arguments),
        }
        check_of = partial(count_elements, limits=limits)
        on_error, admit = self.metrics.count_error, self._authentication.admit

        def registrar_of(server: grpc.Server) -> grpc.Server:
            registrar = HandlerRegistrar(server, self._pools.by_name, watchdogs, unread, check_of, on_error, admit)
            return cast(grpc.Server, registrar)

        registrar = registrar_of(self._server)
        for name, service in SERVICES.items():
            service.add_to_server(servicers[name], registrar)
        if self.repository is not None:
            guests = Guests(parts, self.repository)
            shares_memory, streams = self.settings.models_shm, burst_servicer.streams
            statistics = ModelStatistics()
            host = InferenceHost(
                guests, unread, streams, lambda: self._is_ready, shares_memory, statistics, self.metrics.count_error
            )
            add_GRPCInferenceServiceServicer_to_server(InferenceServicer(parts, host), registrar)
            if self._http_server is not None:
                forwarded = ForwardedInferenceServicer(parts, host)
                add_GRPCInferenceServiceServicer_to_server(forwarded, registrar_of(self._http_server))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, registrar)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], registrar)

    def _schedule_trim(self) -> None:
        """Return unused memory to the system after the last session, once connections and threads have ended too."""

        def trim() -> None:
            if self.sessions.count() == 0:
                trim_memory()

        self._timers.call_at(now_ns() + TRIM_DELAY_NS, trim)

    @property
    def threads(self) -> int:
        """Number of threads that may serve calls at most."""
        return self._pools.threads + self._limits["data_connections"] + UNAUTHENTICATED

    def start(self) -> None:
        """Start to listen.

        Raises:
            ValueError: an address is in use, or cannot be bound.
        """
        self._limits.lower("service_memory_bytes", client_bytes(self.settings.process_bytes, self.threads))
        try:
            self._endpoints.bind(self._server)
        except ValueError:
            self._close_devices()
            raise
        self.addresses = self._endpoints.addresses
        self._authentication.ports, self._authentication.paths = self._endpoints.ports, self._endpoints.paths
        self.metrics.start()
        self._data_socket.start()
        self._server.start()
        if self._http_server is not None:
            self._http_server.start()
        for name in ("", *self._names):
            self._health.set(name, _NOT_SERVING if name == _DEVICE else _SERVING)
        self._preloader.start(self._start_repository)
        if self._endpoints.certificates is not None:
            self._endpoints.certificates.watch(self._timers)
        event(
            "serving",
            addresses=",".join(self.addresses),
            devices=",".join(device.name for device in self._devices),
            version=self._devices[0].get_version_string(),
        )

    def _start_repository(self) -> None:
        """Load the warm models by name, after those of the cache. Then the devices are ready."""
        if self.repository is None:
            self._note_ready()
        else:
            self.repository.start(self._note_ready)

    def _note_ready(self) -> None:
        self._is_warm = True
        self._health.set(_DEVICE, _SERVING if self._is_ready else _NOT_SERVING)

    @property
    def _is_ready(self) -> bool:
        return self._is_warm and not self._drained

    def drain(self) -> None:
        """Accept no more sessions, and send the clients of the open ones elsewhere, until `resume`.

        The health is NOT_SERVING. What runs is finished within the grace time; then these sessions end.
        """
        for name in ("", *self._names):
            self._health.set(name, _NOT_SERVING)
        self._drained = True
        leaving = self.sessions.all()
        self.sessions.drain()

        def end() -> None:
            for session in leaving:
                self.sessions.end(session, STOPPING)

        self._timers.call_at(now_ns() + int(self.settings.stop_grace_s * 1e9), end)

    def resume(self) -> None:
        """Undo `drain`. Sessions that were sent elsewhere do not come back by themselves."""
        self._drained = False
        self.sessions.resume()
        for name in ("", *self._names):
            self._health.set(name, _SERVING)

    def stop(self) -> None:
        """Stop gracefully: reject new calls, let running ones finish within the grace time, then end all threads."""
        event("stopping", sessions=self.sessions.count())
        self._health.enter_graceful_shutdown()
        # the keep-alive streams of sessions would block the server until the grace time is over: end them first
        self.sessions.drain()
        self._end_unbound_streams()
        leaving = self.sessions.all()
        time.sleep(LAST_CALLS_S)
        self._endpoints.release_inherited()
        grace_s = self.settings.stop_grace_s
        end = time.monotonic() + grace_s
        if self._http_server is not None:
            self._http_server.stop(grace_s + CUT_OFF_S)
        stopped = self._server.stop(grace_s + CUT_OFF_S)
        # the ends of sessions tell what is cut off why; gRPC would only cancel it
        self._timers.call_at(now_ns() + int(grace_s * 1e9), self.sessions.end_all)
        self._endpoints.remove_sockets()
        self._data_socket.drain(grace_s)
        if not stopped.wait(max(0.0, end + ABORT_S - time.monotonic())):
            for session in leaving:
                session.abort_calls()
            stopped.wait()
        self.sessions.close()
        self._preloader.close()
        if self.repository is not None:
            self.repository.close()
        self._close_devices()
        self._pools.close()
        self._timers.close()
        self._data_socket.close()
        self.metrics.close()
        self.recorder.close()
        if self._tracer is not None:
            self._tracer.close()
        event("stopped")

    def _close_devices(self) -> None:
        for device in self._devices:
            device.close()

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_until_shutdown(server: Server, on_ready: Callable[[Sequence[str]], None], parent: int | None = None) -> None:
    """Run a server in a process of its own, until SIGINT or SIGTERM, or until the parent process exits.

    `on_ready` is called with the addresses when the server listens.
    """
    settings = server.settings
    limit_memory(settings.process_bytes, server.threads)
    gc.freeze()  # loaded modules stay; scanning them for garbage would cost each preparation some milliseconds
    with ShutdownSignal(parent) as shutdown, server:
        on_ready(server.addresses)
        shutdown.wait()
        # not cancelled: the exit of the process may hang too
        faulthandler.dump_traceback_later(settings.stop_grace_s + STOP_TIMEOUT_S, exit=True)


def _share_client(settings: Settings, hosting: Hosting, key: bytes) -> ShareClient | None:
    """Return the share of a worker, if the operator wants one."""
    if hosting.share is None or settings.cache_share is None:
        return None
    return ShareClient(hosting.share, key, settings.cache_share_timeout_s, settings.cache_share)


def _shadow_sender(settings: Settings, hosting: Hosting) -> ShadowSender | None:
    """Return the sender of a worker to the shadow, if the operator wants one."""
    if hosting.shadow is None or settings.shadow is None:
        return None
    return ShadowSender(hosting.shadow, hosting.metrics)


def _start_tracer(settings: Settings, hosting: Hosting) -> Tracer:
    """Return what starts traces."""
    try:
        from nnhal_service.tracing.tracer import start_tracer  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"--tracing needs the package {error.name}: install nnhal[tracing]") from error
    name, count = f"worker-{hosting.slot}", hosting.metrics.count
    return start_tracer(name, settings.trace_ratio, count, operations=settings.trace_operations)


def _options(settings: Settings, limits: Limits, *, share_ports: bool) -> list[tuple[str, int]]:
    ping = int(settings.keepalive_s * 1e3)
    return [
        ("grpc.max_receive_message_length", limits["message_bytes"]),
        ("grpc.max_send_message_length", limits["message_bytes"]),
        ("grpc.max_concurrent_streams", CONNECTION_CALLS),
        ("grpc.max_allowed_incoming_connections", resource.getrlimit(resource.RLIMIT_NOFILE)[0] // CONNECTIONS_SHARE),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.server.max_pending_requests", PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS),
        ("grpc.so_reuseport", int(share_ports)),
        ("grpc.keepalive_time_ms", ping),
        ("grpc.keepalive_timeout_ms", ping),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ]
