"""Messages to the service manager that has started this process, such as systemd: the protocol of sd_notify(3)."""

import os
import socket
import time
from contextlib import suppress

_STATUS_S = 1.0
"""Seconds between two changes of the status text. The ones between them are left out."""
_WATCHDOG_SHARE = 3
"""Number of signs of life within the time after which the service manager ends the service."""


class ServiceManager:
    """Connection to the service manager. Without one, it does nothing.

    It removes $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID, so that no child process answers for this one.
    """

    def __init__(self) -> None:
        name = os.environ.pop("NOTIFY_SOCKET", "")
        period_us = os.environ.pop("WATCHDOG_USEC", "0")
        watched = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if name else None
        is_watched = period_us.isdecimal() and watched == str(os.getpid())
        self._alive_every_s = int(period_us) / 1e6 / _WATCHDOG_SHARE if is_watched else 0.0
        self._alive_at = 0.0
        self._status = ""
        self._status_at = 0.0

    def ready(self) -> None:
        """Report that the service serves: after its start, and after a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report the start of a reload."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, seconds: float) -> None:
        """Report that the service stops, and the seconds that this may take."""
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def show_status(self, text: str) -> None:
        """Report the status in words, at most once a second, and only if it has changed."""
        now = time.monotonic()
        if self._socket is not None and text != self._status and now - self._status_at >= _STATUS_S:
            self._status, self._status_at = text, now
            self._send(f"STATUS={text}")

    def keep_alive(self) -> None:
        """Give a sign of life if it is time for one."""
        now = time.monotonic()
        if self._alive_every_s and now - self._alive_at >= self._alive_every_s:
            self._alive_at = now
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the service goes on without a service manager
                self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)
