"""Devices of interpreters: one connection for each target, shared by the interpreters of a process."""

import os
import threading
from collections.abc import Hashable, Mapping
from typing import Any, TypedDict

import grpc

from nnhal.client.core.session import Transport
from nnhal.client.security.options import PemSource, TokenSource
from nnhal.client.sync.device import Device, connect


class ConnectOptions(TypedDict, total=False):
    """Options of `nnhal.connect`. Without a target, NNHAL_TARGET names it; else the service is embedded."""

    target: str | None
    device: str
    timeout: float
    transport: Transport
    client_name: str
    credentials: grpc.ChannelCredentials | None
    tls: bool | None
    ca: PemSource | None
    cert: PemSource | None
    key: PemSource | None
    server_name: str
    token: TokenSource | None
    accelerator: str


_devices: dict[Hashable, Device] = {}
_lock = threading.Lock()


def shared_device(options: ConnectOptions) -> Device:
    """Return the device of some options. It stays connected until the process ends.

    Raises:
        HalError, TypeError: see `nnhal.connect`.
    """
    arguments: Mapping[str, Any] = {**options, "target": options.get("target") or _target_of_environment()}
    key = (os.getpid(), *sorted(arguments.items()))
    with _lock:
        if key not in _devices:
            _devices[key] = connect(**arguments)
        return _devices[key]


def _target_of_environment() -> str | None:
    """Return the first address of NNHAL_TARGET, which names several devices for programs in C."""
    return os.environ.get("NNHAL_TARGET", "").partition(",")[0].strip() or None


def _forget_lock() -> None:
    """Replace the lock in the child of a fork, where a thread of the parent may hold it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
