"""Processor time of a service on this machine."""

import socket
from typing import TYPE_CHECKING

from nnhal.address import Address
from nnhal.local_users import socket_process

if TYPE_CHECKING:
    import psutil


class ServiceProcesses:
    """The processes of this machine that serve at an address: workers with their supervisor, or an embedded service.

    The processor time of a service is unknown if it is on another machine, or belongs to a user whose processes this
    one may not see.
    """

    def __init__(self, target: str) -> None:
        import psutil

        self._processes: list[psutil.Process] = []
        try:
            if (process := _listener(Address.parse(target))) is not None:
                parent = process.parent()
                is_worker = parent is not None and "serve" in parent.cmdline()
                top = parent if parent is not None and is_worker else process
                self._processes = [top, *top.children(recursive=True)]
        except (psutil.Error, OSError):
            self._processes = []

    def processor_s(self) -> float | None:
        """Return the seconds of processor time that the processes have used, or None if they are unknown."""
        import psutil

        try:
            times = [process.cpu_times() for process in self._processes]
        except psutil.Error:
            return None
        return sum(each.user + each.system for each in times) if times else None


def _listener(address: Address) -> "psutil.Process | None":
    """Return a process that listens at an address, or None if it is unknown."""
    import psutil

    if address.kind == "unix":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.path)
            return psutil.Process(socket_process(connection))
    if address.is_local:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == address.port and each.pid:
                return psutil.Process(each.pid)
    return None
