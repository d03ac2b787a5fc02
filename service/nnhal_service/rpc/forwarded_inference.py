"""Open Inference Protocol for HTTP clients, whose calls the admin process makes at a private socket of the worker."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from nnhal_service.identity.http_caller import IdentifiedCaller
from nnhal_service.identity.identity import ANONYMOUS, Credential
from nnhal_service.open_inference.guests import Guest
from nnhal_service.rpc.inference import InferenceServicer

SOCKET = "inference"
"""Name of the socket in the private folder of the worker, so that only the user of the service and root reach it."""


class ForwardedInferenceServicer(InferenceServicer):
    """Servicer for callers whom the admin process has identified."""

    def _guest(self, context: grpc.ServicerContext) -> Guest:
        caller = IdentifiedCaller.of_call(context)
        credential = Credential(caller.identity, "" if caller.identity == ANONYMOUS else caller.peer)
        self._sessions.authentication.account(credential, caller.peer)
        return self._guests.of(credential, caller.peer)

    def _user(self, context: grpc.ServicerContext) -> int | None:
        return IdentifiedCaller.of_call(context).user


def private_server(folder: Path, threads: ThreadPoolExecutor, options: list[tuple[str, int]]) -> grpc.Server:
    """Return a server at the socket, without services."""
    server = grpc.server(threads, options=options)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)  # a short name, as long as the process runs
    server.add_insecure_port(f"unix:/proc/self/fd/{descriptor}/{SOCKET}")
    return server
