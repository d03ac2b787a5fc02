"""The gRPC server of the admin process."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal.errors import HalError
from nnhal.local_users import own_and_root
from nnhal_service import log
from nnhal_service.operating.admin.relay import LocalRelay
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.admin.servicer import AdminServicer

_NAME = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
_THREADS = 16
_SOCKET = "grpc"


AddPort = Callable[[grpc.Server], Callable[[], None]]
"""Adds a port to a server, and returns what to call before the server stops."""
Identify = Callable[[grpc.ServicerContext], str]
"""Returns the identity of a caller over TCP. Raises PermissionError with it if it may not administer."""


class AdminServer:
    """Server of the administration. Close it when done.

    Args:
        local: a listening Unix socket, for the user of the service and root; it remains the caller's.
        add_port: adds a TCP port with TLS; None for no such port.
        identify: decides about callers over TCP.
    """

    def __init__(
        self,
        view: ServiceView,
        local: socket.socket,
        folder: Path,
        add_port: AddPort | None = None,
        identify: Identify | None = None,
    ) -> None:
        self._identify = identify
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "nnhal-admin-call"))
        admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(view, self._caller), self._server)
        servicer = health.HealthServicer(experimental_non_blocking=True)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._server)
        reflection.enable_server_reflection([_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        # a short name, however long the path of the folder is
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        path = f"/proc/self/fd/{self._folder}/{_SOCKET}"
        self._server.add_insecure_port(f"unix:{path}")
        self._release_port = add_port(self._server) if add_port is not None else None
        self._server.start()
        for name in ("", _NAME):
            servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._relay = LocalRelay(
            local, path, own_and_root(), lambda user: log.audit("connect", by=f"user:{user}", result="denied")
        )

    def _caller(self, context: grpc.ServicerContext) -> str:
        """Return who calls."""
        peer = context.peer()
        if not peer.startswith("unix") and self._identify is not None:
            try:
                return self._identify(context)
            except HalError as error:
                raise PermissionError(f"a caller that cannot be identified ({error.reason})") from None
        user = self._relay.user(peer)
        if user is None:
            raise PermissionError("an unknown process")
        return f"user:{user}"

    def close(self) -> None:
        """Answer no more calls."""
        if self._release_port is not None:
            self._release_port()
        self._relay.close()
        self._server.stop(0).wait()
        os.close(self._folder)
