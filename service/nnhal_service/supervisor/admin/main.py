"""The admin process: a child of the supervisor that serves operators, and asks the workers on their behalf."""

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from nnhal_driver.scheduling.timers import Timers
from nnhal_service import log
from nnhal_service.access import create_authentication
from nnhal_service.admin.peer_exchange import PeerExchange
from nnhal_service.admin.server import AddPort, AdminServer, Identify
from nnhal_service.admin.servicer import snapshot_message
from nnhal_service.admin.supervisor_link import SupervisorLink
from nnhal_service.admin.workers_view import WorkersView
from nnhal_service.grpc_support.inherited_socket import InheritedSocket
from nnhal_service.log import event
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import restrict
from nnhal_service.settings import Settings
from nnhal_service.shutdown import ShutdownSignal
from nnhal_service.supervisor.adoption import end_with
from nnhal_service.supervisor.channel import Channel
from nnhal_service.supervisor.worker_output import redirect_output
from nnhal_service.tls import load_certificates

PROCESS_NAME = "nnhal-admin"
"""Name of the process in the tables of the system."""
_NAME_FILE = Path("/proc/self/comm")


def run_admin(message: Mapping[str, Any], channel: Channel, output: int, descriptors: Sequence[int]) -> None:
    """Serve operators until SIGTERM, or the end of the supervisor.

    Args:
        message: the message of the supervisor: its process, the settings, a private folder, and the names of sockets.
        channel: to the supervisor.
        output: descriptor of the pipe for what libraries print.
        descriptors: the listening sockets, in the order of their names.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(message["supervisor"])
    _NAME_FILE.write_text(PROCESS_NAME)
    channel.send({"pid": os.getpid()})
    settings, folder = Settings.model_validate(message["settings"]), Path(message["admin"])
    log.configure(settings.log_level, settings.log_format, redirect_output(output), fields={"process": "admin"})
    if settings.sandbox != "off":
        listen = [text for text in (settings.http_listen, settings.admin_tcp_listen) if text is not None]
        # it connects to the sockets of the workers, which no rule can tell from others
        profile = profile_of(settings, listen, folder)
        restrict(replace(profile, readable=(*profile.readable, Path(message["metrics"])), outgoing=True))
    members = settings.members_file(message["supervisor"])
    fleet = WorkersView(SupervisorLink(channel), members)
    with ShutdownSignal(message["supervisor"]) as shutdown, ExitStack() as stack:
        sockets = {
            name: stack.enter_context(socket.socket(fileno=descriptor))
            for name, descriptor in zip(message["sockets"], descriptors, strict=True)
        }
        if "admin" in sockets:
            tcp = _prepare_tcp(settings, sockets["tcp"], folder, stack) if "tcp" in sockets else ()
            stack.enter_context(closing(AdminServer(fleet, sockets["admin"], folder, *tcp)))
        if settings.fleet_peers is not None and members is not None:
            stack.enter_context(closing(PeerExchange(settings, members, lambda: snapshot_message(fleet.snapshot()))))
        if "http" in sockets:
            _serve_http(settings, fleet, sockets["http"], stack)
        shutdown.wait()


def _prepare_tcp(
    settings: Settings, listener: socket.socket, folder: Path, stack: ExitStack
) -> tuple[AddPort, Identify]:
    """Return what the server needs for a TCP port with TLS, whose callers need the right to administer."""
    certificates, authentication = load_certificates(settings), create_authentication(settings)
    assert certificates is not None  # the supervisor has checked it
    timers = stack.enter_context(closing(Timers("nnhal-admin-timers")))
    certificates.watch(timers)
    port = listener.getsockname()[1]
    authentication.ports = (port,)
    event("admin-serving", port=port)

    def add_port(server: grpc.Server) -> Callable[[], None]:
        inherited = InheritedSocket(
            listener.fileno(), folder, lambda own: server.add_secure_port(own, certificates.server_credentials())
        )
        return inherited.release

    def identify(context: grpc.ServicerContext) -> str:
        identity = authentication.identify(context).identity
        if not authentication.accounts.of(identity).rules.administer:
            raise PermissionError(str(identity))
        return str(identity)

    return add_port, identify


def _serve_http(settings: Settings, fleet: WorkersView, listener: socket.socket, stack: ExitStack) -> None:
    """Serve the HTTP port until the stack is closed. Without it, the administration goes on."""
    from nnhal_service.web.http_port import HttpPort  # noqa: PLC0415 - its imports take time

    try:
        stack.enter_context(closing(HttpPort(settings, fleet, listener, fleet.current_settings)))
    except (ImportError, ValueError) as error:
        event("http-failed", logging.ERROR, why=str(error))
        listener.close()
