"""The admin process: a child of the supervisor that serves operators, and asks the workers on their behalf."""

import logging
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import grpc

from nnhal_driver.scheduling.timers import Timers
from nnhal_service import log
from nnhal_service.grpc_support.inherited_socket import InheritedSocket
from nnhal_service.log import event
from nnhal_service.operating.admin.peer_exchange import PeerExchange
from nnhal_service.operating.admin.server import AddPort, AdminServer, Identify
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.admin.supervisor_link import SupervisorLink
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import restrict
from nnhal_service.serving.client_authentication import create_authentication
from nnhal_service.settings import Settings
from nnhal_service.shutdown import ShutdownSignal
from nnhal_service.supervisor.adoption import begin_process
from nnhal_service.supervisor.template import ChildArguments
from nnhal_service.supervisor.worker_output import redirect_output
from nnhal_service.tls import load_certificates


def run_admin(arguments: ChildArguments) -> None:
    """Serve operators until SIGTERM, or the end of the supervisor.

    Args:
        arguments: its message has the names of sockets, and the folder of the supervisor's metrics. The descriptors are
            the pipe for what libraries print, and the listening sockets, in the order of their names.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    message = arguments.message
    output, *descriptors = arguments.descriptors
    settings, folder = begin_process(arguments, redirect_output(output))
    if settings.sandbox != "off":
        listen = [text for text in (settings.http_listen, settings.admin_tcp_listen) if text is not None]
        # it connects to the sockets of the workers, which no rule can tell from others
        profile = profile_of(settings, listen, folder)
        restrict(replace(profile, readable=(*profile.readable, Path(message["metrics"])), outgoing=True))
    members = settings.members_file(message["supervisor"])
    fleet = ServiceView(SupervisorLink(arguments.channel), members)
    log.watch(fleet.warnings)
    with ShutdownSignal(message["supervisor"]) as shutdown, ExitStack() as stack:
        sockets = {
            name: stack.enter_context(socket.socket(fileno=descriptor))
            for name, descriptor in zip(message["sockets"], descriptors, strict=True)
        }
        if "admin" in sockets:
            tcp = _prepare_tcp(settings, fleet, sockets["tcp"], folder, stack) if "tcp" in sockets else ()
            stack.enter_context(closing(AdminServer(fleet, sockets["admin"], folder, *tcp)))
        if settings.fleet_peers is not None and members is not None:
            stack.enter_context(closing(PeerExchange(settings, members, fleet.snapshot)))
        if "http" in sockets:
            _serve_http(settings, fleet, sockets["http"], stack)
        shutdown.wait()


def _prepare_tcp(
    settings: Settings, fleet: ServiceView, listener: socket.socket, folder: Path, stack: ExitStack
) -> tuple[AddPort, Identify]:
    """Return what the server needs for a TCP port with TLS, whose callers need the right to administer."""
    certificates, authentication = load_certificates(settings), create_authentication(settings, fleet.count)
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


def _serve_http(settings: Settings, fleet: ServiceView, listener: socket.socket, stack: ExitStack) -> None:
    """Serve the HTTP port until the stack is closed. Without it, the administration goes on."""
    from nnhal_service.operating.web.http_port import HttpPort  # noqa: PLC0415 - its imports take time

    try:
        stack.enter_context(closing(HttpPort(settings, fleet, listener, fleet.current_settings)))
    except (ImportError, ValueError) as error:
        event("http-failed", logging.ERROR, why=str(error))
        listener.close()
