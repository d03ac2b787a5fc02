"""Creation and pooling of channels to a service on the same machine."""

import itertools
import sys
import threading
from typing import TYPE_CHECKING

from nnhal.address import Address
from nnhal.client.forks import close_in_forks
from nnhal.errors import HalError
from nnhal.shm.protocol import ProtocolError
from nnhal.v1 import session_pb2

if TYPE_CHECKING or sys.platform == "linux":
    from nnhal.client.shm import data_socket
    from nnhal.client.shm.channel import ShmChannel

MAX_CHANNELS = 8
"""Largest number of channels of one device, bursts aside. Further concurrent executions use gRPC."""
BURST_DEPTH = 4
"""Largest number of executions of one burst in progress on a channel."""


def is_same_host(target: str) -> bool:
    """Return whether a target may be on this machine, and the machine supports the data socket."""
    return sys.platform == "linux" and Address.parse(target).is_local


class ChannelFactory:
    """Opens channels of one session."""

    def __init__(self, opened: session_pb2.SessionOpened) -> None:
        self._opened = opened
        self._numbers = itertools.count(1)
        self._unavailable = not opened.data_socket

    def open(self, depth: int) -> "ShmChannel | None":
        """Open a channel for `depth` executions in progress at once.

        Returns:
            the channel, or None if the data socket cannot be used.
        """
        if self._unavailable:
            return None
        opened = self._opened
        try:
            connection = data_socket.connect(opened.data_socket, opened.session, opened.data_secret)
        except OSError:
            self._unavailable = True  # permanent: the service is on another machine, or rejects this user
            return None
        except (HalError, ProtocolError):
            return None
        close_in_forks(connection)
        return ShmChannel(connection, self._numbers, depth)


class ChannelPool:
    """Idle channels of a device. Thread safe. Close it when done."""

    def __init__(self) -> None:
        self._idle: list[ShmChannel] = []
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> "ShmChannel | None":
        """Remove and return an idle channel, or None if there is none."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def reserve(self) -> bool:
        """Reserve a place for a new channel. Return False if there are too many."""
        with self._lock:
            if self._closed or self._count >= MAX_CHANNELS:
                return False
            self._count += 1
            return True

    def give_back(self, channel: "ShmChannel | None", *, usable: bool = False) -> None:
        """Return a channel, which is closed if it is not usable; or its reserved place if it could not be opened."""
        with self._lock:
            if channel is not None and usable and not self._closed:
                self._idle.append(channel)
                return
            self._count -= 1
        if channel is not None:
            channel.connection.close()

    def close(self) -> None:
        """Close the idle channels, and the others when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for channel in idle:
            channel.connection.close()
