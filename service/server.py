"""A service: the gRPC server, the device behind it, and their start and stop."""

import faulthandler
import gc
import ipaddress
import os
from collections.abc import Callable, Sequence
from typing import cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cache.store import Store
from driver.deadline import now_ns
from driver.device import Device
from driver.performance import Performance
from driver.scheduler import Queues
from driver.timers import Timers
from nnhal.v1 import (
    buffer_pb2,
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    cache_pb2,
    cache_pb2_grpc,
    device_pb2,
    device_pb2_grpc,
    execution_pb2,
    execution_pb2_grpc,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from service.backends import assemble, find
from service.buffer import BufferServicer
from service.burst import REFUSING_THREADS, BurstServicer
from service.cache import CacheServicer, open_key
from service.data_socket import DataSocket, SharingService
from service.decoding import Registry
from service.device import DeviceServicer
from service.devices import Devices
from service.ending import Ending
from service.execution import ExecutionServicer
from service.fence import FenceServicer
from service.kept_models import KeptModels
from service.limits import Limits, MemoryQuota
from service.log import event
from service.memory import MemoryServicer
from service.patience import Patience
from service.prepared_model import PreparedModelServicer
from service.process import give_back_memory, limit_memory
from service.rpc import complete, on_pool
from service.session import SessionServicer
from service.sessions import Sessions
from service.settings import Settings
from service.threads import CallPool
from service.warm import WarmModels

_SERVICES = [
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (buffer_pb2, "Buffer"),
        (burst_pb2, "Burst"),
        (cache_pb2, "Cache"),
        (device_pb2, "Device"),
        (execution_pb2, "Execution"),
        (fence_pb2, "Fence"),
        (memory_pb2, "MemoryService"),
        (prepared_model_pb2, "PreparedModel"),
        (session_pb2, "Session"),
    )
]


REST_NS = 10**9
"""After the last session has ended."""
STOPPING_S = 20
"""A stop that takes so long beyond its grace hangs: the log says where every thread stands, and the process ends."""

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
_DEVICE = device_pb2.DESCRIPTOR.services_by_name["Device"].full_name
"""Serves when the models that are to be prepared on start are there; the others do at once."""


class Server:
    """One service. `start` it, then `stop` it; or use it as a context manager.

    Raises:
        ValueError: an address is malformed, open to other machines without `insecure`, or taken; a backend is unknown.
    """

    def __init__(self, settings: Settings) -> None:
        for address in settings.listen:
            if not settings.insecure and not is_local(address):
                raise ValueError(f"{address} can be reached from other machines; without TLS that needs --insecure")
        self.settings = settings
        found = find(settings)
        self._limits = Limits(settings.limits)
        queues = Queues(self._limits["queued_preparations"], self._limits["queued_executions"])
        assemblies = {name: assemble(settings, found) for name in settings.devices}
        self._reports = {name: assembly.reports for name, assembly in assemblies.items()}
        self._store, key = Store(settings.cache_dir, settings.cache_bytes), open_key(settings)
        performance = Performance(settings.state_dir)
        self._devices = [
            Device(name, assembly.backends, queues, self._limits["tensor_bytes"], key, performance=performance)
            for name, assembly in assemblies.items()
        ]
        self._warm = WarmModels(self._store, self._devices, settings.warm)
        self._sessions = Sessions(settings.session_grace_s, self._limits, self._rest)
        self._executor = CallPool(settings.threads, settings.idle_thread_s, "nnhal-call")
        self._transfers = CallPool(settings.transfers, settings.idle_thread_s, "nnhal-transfer")
        streams = self._limits["burst_streams"] + REFUSING_THREADS
        self._bursts = CallPool(streams, settings.idle_thread_s, "nnhal-burst")
        self._patience = Patience(settings.transfer_idle_s)
        self._timers = Timers("nnhal-waits")
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._server = grpc.server(self._executor, options=_options(settings, self._limits))
        self._register()
        self.addresses: tuple[str, ...] = ()

    def _register(self) -> None:
        server, sessions, limits, executor = (
            cast(grpc.Server, Registry(self._server)),
            self._sessions,
            self._limits,
            self._executor,
        )
        quota = MemoryQuota(limits)
        devices, kept = Devices(self._devices), KeptModels(self._store)
        users = {os.getuid(), *self.settings.data_users}
        self._data_socket = DataSocket(SharingService(sessions, limits, quota), users)
        device_pb2_grpc.add_DeviceServicer_to_server(
            complete(DeviceServicer)(devices, sessions, executor, limits, self._reports, quota, kept, self._warm),
            server,
        )
        session_pb2_grpc.add_SessionServicer_to_server(
            SessionServicer(sessions, executor, limits, self._data_socket.name), server
        )
        memory_pb2_grpc.add_MemoryServiceServicer_to_server(
            on_pool(MemoryServicer(sessions, limits, quota, self._patience), self._transfers, "Upload", "Read"), server
        )
        prepared_model_pb2_grpc.add_PreparedModelServicer_to_server(
            complete(PreparedModelServicer)(sessions, limits, quota), server
        )
        execution_pb2_grpc.add_ExecutionServicer_to_server(complete(ExecutionServicer)(sessions, limits, quota), server)
        burst_pb2_grpc.add_BurstServicer_to_server(
            on_pool(BurstServicer(sessions, limits, quota), self._bursts, "Stream"), server
        )
        buffer_pb2_grpc.add_BufferServicer_to_server(BufferServicer(sessions, limits, quota), server)
        fence_pb2_grpc.add_FenceServicer_to_server(complete(FenceServicer)(sessions, executor, self._timers), server)
        cache_pb2_grpc.add_CacheServicer_to_server(
            complete(CacheServicer)(sessions, limits, self._store, devices, kept), server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], server)

    def _rest(self) -> None:
        """No session is left: what malloc keeps goes back, as soon as connections and threads have gone as well."""

        def rest() -> None:
            if self._sessions.count() == 0:
                give_back_memory()

        self._timers.at(now_ns() + REST_NS, rest)

    @property
    def threads(self) -> int:
        """How many threads may serve calls."""
        pools = (self._executor, self._transfers, self._bursts)
        return sum(pool.limit for pool in pools) + self._limits["data_connections"]

    def start(self) -> None:
        """Listens. `addresses` then holds the addresses with their real ports."""
        bound = []
        for address in self.settings.listen:
            port = _bind(self._server, address)
            bound.append(address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}")
        self.addresses = tuple(bound)
        self._data_socket.start()
        self._server.start()
        for name in ("", *_SERVICES):
            self._health.set(name, _NOT_SERVING if name == _DEVICE else _SERVING)
        self._warm.start(lambda: self._health.set(_DEVICE, _SERVING))
        event(
            "serving",
            addresses=",".join(self.addresses),
            devices=",".join(self.settings.devices),
            version=self._devices[0].get_version_string(),
        )

    def stop(self) -> None:
        """Ends gracefully: no new calls, running ones have their grace, then every session and thread is ended."""
        event("stopping", sessions=self._sessions.count())
        self._health.enter_graceful_shutdown()
        # the streams of sessions would hold the server until the grace is over: end them first
        self._sessions.close()
        self._server.stop(self.settings.stop_grace_s).wait()
        self._warm.close()
        for device in self._devices:
            device.close()
        self._executor.shutdown()
        self._transfers.shutdown()
        self._bursts.shutdown()
        self._patience.close()
        self._timers.close()
        self._data_socket.close()
        event("stopped")

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_until_told(server: Server, ready: Callable[[Sequence[str]], None], parent: int | None = None) -> None:
    """Runs a server in a process that does nothing else, until SIGINT or SIGTERM.

    Args:
        ready: is told the addresses.
        parent: a process with whose end the server stops too.
    """
    settings = server.settings
    limit_memory(settings.process_bytes, server.threads)
    gc.freeze()  # what is loaded by now stays; looking through it for garbage costs each preparation some milliseconds
    with Ending(parent) as ending, server:
        ready(server.addresses)
        ending.wait()
        # until the process has ended: what ends after the server may hang as well
        faulthandler.dump_traceback_later(settings.stop_grace_s + STOPPING_S, exit=True)


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address: a Unix socket, or loopback."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(server: grpc.Server, address: str) -> int:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ValueError(f"cannot listen on {address}: {error}") from None
    if port == 0:
        raise ValueError(f"cannot listen on {address}")
    return port


def _options(settings: Settings, limits: Limits) -> list[tuple[str, int]]:
    ping = int(settings.keepalive_s * 1e3)
    return [
        ("grpc.max_receive_message_length", limits["message_bytes"]),
        ("grpc.max_send_message_length", limits["message_bytes"]),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", ping),
        ("grpc.keepalive_timeout_ms", ping),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ]
