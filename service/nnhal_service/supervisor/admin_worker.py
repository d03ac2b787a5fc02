"""The admin process: a child of the supervisor that serves operators, and asks the workers on their behalf."""

import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnhal_service import log
from nnhal_service.admin.fleet import Fleet
from nnhal_service.admin.server import AdminServer
from nnhal_service.admin.supervisor_link import SupervisorLink
from nnhal_service.settings import Settings
from nnhal_service.shutdown import ShutdownSignal
from nnhal_service.supervisor.adoption import end_with
from nnhal_service.supervisor.channel import Channel


def run_admin(message: Mapping[str, Any], channel: Channel, listener: int) -> None:
    """Serve operators until SIGTERM, or the end of the supervisor.

    Args:
        message: the message of the supervisor: its process, the settings, and a private folder.
        channel: to the supervisor.
        listener: descriptor of the listening socket.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(message["supervisor"])
    channel.send({"pid": os.getpid()})
    settings = Settings.model_validate(message["settings"])
    log.configure(settings.log_level, settings.log_format, fields={"process": "admin"})
    fleet = Fleet(SupervisorLink(channel))
    with ShutdownSignal(message["supervisor"]) as shutdown, socket.socket(fileno=listener) as accepting:
        server = AdminServer(fleet, accepting, Path(message["admin"]))
        shutdown.wait()
        server.close()
