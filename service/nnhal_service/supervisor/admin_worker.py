"""The admin process: a child of the supervisor that serves operators, and asks the workers on their behalf."""

import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnhal_service import log
from nnhal_service.admin.fleet import Fleet
from nnhal_service.admin.server import AdminServer
from nnhal_service.admin.supervisor_link import SupervisorLink
from nnhal_service.log import event
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import restrict
from nnhal_service.settings import Settings
from nnhal_service.shutdown import ShutdownSignal
from nnhal_service.supervisor.adoption import end_with
from nnhal_service.supervisor.channel import Channel

PROCESS_NAME = "nnhal-admin"
"""Name of the process in the tables of the system."""
_NAME_FILE = Path("/proc/self/comm")


def run_admin(message: Mapping[str, Any], channel: Channel, descriptors: Sequence[int]) -> None:
    """Serve operators until SIGTERM, or the end of the supervisor.

    Args:
        message: the message of the supervisor: its process, the settings, a private folder, and the names of sockets.
        channel: to the supervisor.
        descriptors: the listening sockets, in the order of their names.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(message["supervisor"])
    _NAME_FILE.write_text(PROCESS_NAME)
    channel.send({"pid": os.getpid()})
    settings, folder = Settings.model_validate(message["settings"]), Path(message["admin"])
    log.configure(settings.log_level, settings.log_format, fields={"process": "admin"})
    if settings.sandbox != "off":
        listen = [settings.http_listen] if settings.http_listen is not None else []
        # it connects to the sockets of the workers, which no rule can tell from others
        profile = profile_of(settings, listen, folder)
        restrict(replace(profile, readable=(*profile.readable, Path(message["metrics"])), outgoing=True))
    fleet = Fleet(SupervisorLink(channel))
    with ShutdownSignal(message["supervisor"]) as shutdown, ExitStack() as stack:
        for name, descriptor in zip(message["sockets"], descriptors, strict=True):
            listener = stack.enter_context(socket.socket(fileno=descriptor))
            if name == "admin":
                stack.enter_context(closing(AdminServer(fleet, listener, folder)))
            else:
                _serve_http(settings, fleet, listener, stack)
        shutdown.wait()


def _serve_http(settings: Settings, fleet: Fleet, listener: socket.socket, stack: ExitStack) -> None:
    """Serve the HTTP port until the stack is closed. Without it, the administration goes on."""
    from nnhal_service.web.http_port import HttpPort  # noqa: PLC0415 - its imports take time

    try:
        stack.enter_context(closing(HttpPort(settings, fleet, listener, fleet.current_settings)))
    except (ImportError, ValueError) as error:
        event("http-failed", logging.ERROR, why=str(error))
        listener.close()
