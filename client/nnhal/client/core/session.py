"""Common parts of the connections of both clients: channel options, errors, and handles to release."""

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Literal

from nnhal.errors import DeadObjectError, SessionLostError
from nnhal.types import ErrorKind, ErrorStatus

Transport = Literal["auto", "grpc"]
"""Transport of executions: "auto" uses shared memory if the service is on the same machine, "grpc" never does."""

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 16 * 2**20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # short, so that a restarted service is found soon
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # otherwise a new channel reports the failure of an earlier one to the same address, during its back-off
    ("grpc.use_local_subchannel_pool", 1),
]

CLOSE_TIMEOUT_S = 5.0
"""Seconds to wait for the service when a session is closed."""


def program_name() -> str:
    """Return the name of the running program: its file, or the package of `python -m`; "" in an interpreter."""
    path = Path(sys.argv[0] if sys.argv else "")
    return path.parent.name if path.name == "__main__.py" else path.name


def timeout_error(target: str, timeout: float) -> DeadObjectError:
    """Return the error of a service that does not respond in time."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, f"no response from {target} within {timeout:.3g} s")


def closed_error() -> SessionLostError:
    """Return the error of a call after `close`."""
    reason = "the device has been closed; connect and prepare again"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason, kind=ErrorKind.SESSION_LOST)


def lost_error() -> SessionLostError:
    """Return the error of a call for an object of a session that was lost."""
    reason = "the object was lost with its session, when the service ended or restarted; create it again"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason, kind=ErrorKind.SESSION_LOST)


def gone_error(target: str, *, in_order: bool) -> DeadObjectError:
    """Return the error of a call to a service that no longer listens at its address.

    `in_order` tells whether the service has said that it stops. It then finishes what it runs.
    """
    kind = ErrorKind.STOPPING if in_order else ErrorKind.UNSPECIFIED
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, f"the service at {target} has ended", kind=kind)


def connection_replaced_error() -> DeadObjectError:
    """Return the error of a call whose channel was closed meanwhile."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the connection was closed during the call")


def connection_lost_error() -> DeadObjectError:
    """Return the error of an execution whose connection to the data socket ended."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the data connection during an execution")


class PendingReleases:
    """Handles to release with the next call. Thread safe and non-blocking, so that finalizers may use it.

    Attributes:
        handles: the handles; read only.
    """

    def __init__(self) -> None:
        self.handles: deque[bytes] = deque()

    def add(self, handles: Iterable[bytes]) -> None:
        """Add handles."""
        self.handles.extend(handles)

    def take_all(self) -> list[bytes]:
        """Remove and return all handles."""
        handles: list[bytes] = []
        with suppress(IndexError):
            while True:
                handles.append(self.handles.popleft())
        return handles


def method_path(module: ModuleType, method: str) -> str:
    """Return the path of a gRPC method of the one service in a file of the contract."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return f"/{service.full_name}/{service.methods_by_name[method].name}"
