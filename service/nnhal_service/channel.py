"""Channel between supervisor, template and workers: messages of JSON with descriptors, over a packet socket."""

import json
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

_MAX_BYTES = 2**17
"""Largest message. Settings are the largest ones."""
_MAX_DESCRIPTORS = 32

Message = Mapping[str, Any]


class Channel:
    """One end of a channel. Close it when done."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    @staticmethod
    def pair() -> tuple["Channel", "Channel"]:
        """Return the two ends of a new channel."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(first), Channel(second)

    @staticmethod
    def from_descriptor(descriptor: int) -> "Channel":
        """Return the end that a descriptor refers to, and take ownership of it."""
        return Channel(socket.socket(fileno=descriptor))

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> bool:
        """Send a message. Return whether the other end still exists."""
        try:
            socket.send_fds(self.socket, [json.dumps(message).encode()], list(descriptors))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> tuple[Message, list[int]] | None:
        """Wait for a message. Return it with its descriptors; None if the other end is closed."""
        text, descriptors = b"", list[int]()
        # if the other end was closed with unread messages, the first attempt reports that, before messages from there
        for _ in range(2):
            with suppress(ConnectionResetError):
                text, descriptors, _, _ = socket.recv_fds(self.socket, _MAX_BYTES, _MAX_DESCRIPTORS)
                break
        return (json.loads(text), descriptors) if text else None

    def poll(self, seconds: float = 0.0) -> bool:
        """Wait for a message for some seconds at most. Return whether `receive` would return at once."""
        return wait_readable(self.socket, seconds)

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self.socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def wait_readable(file: int | socket.socket, seconds: float = 0.0) -> bool:
    """Wait for some seconds at most. Return whether a file can be read. That of a process can when it has ended."""
    poll = select.poll()  # select.select fails for large descriptors
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1e3))
