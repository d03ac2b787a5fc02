"""The gRPC server of the admin process."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal.local_users import own_and_root
from nnhal_service import log
from nnhal_service.admin.relay import LocalRelay
from nnhal_service.admin.servicer import AdminServicer
from nnhal_service.admin.view import ServiceView

_NAME = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
_THREADS = 16
_SOCKET = "grpc"


class AdminServer:
    """Server of the administration on a Unix socket, for the user of the service and root. Close it when done.

    Args:
        view: the service.
        listener: the listening socket, which remains the caller's.
        folder: private folder for a socket.
    """

    def __init__(self, view: ServiceView, listener: socket.socket, folder: Path) -> None:
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "nnhal-admin-call"))
        admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(view, self._caller), self._server)
        servicer = health.HealthServicer(experimental_non_blocking=True)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._server)
        reflection.enable_server_reflection([_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        # a short name, however long the path of the folder is
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        path = f"/proc/self/fd/{self._folder}/{_SOCKET}"
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()
        for name in ("", _NAME):
            servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._relay = LocalRelay(listener, path, own_and_root(), _note_refusal)

    def _caller(self, context: grpc.ServicerContext) -> str:
        """Return who calls.

        Raises:
            PermissionError: the connection did not come through the relay.
        """
        user = self._relay.user(context.peer())
        if user is None:
            raise PermissionError("an unknown process")
        return f"user:{user}"

    def close(self) -> None:
        """Answer no more calls."""
        self._relay.close()
        self._server.stop(0).wait()
        os.close(self._folder)


def _note_refusal(user: int) -> None:
    log.audit("connect", by=f"user:{user}", result="denied")
