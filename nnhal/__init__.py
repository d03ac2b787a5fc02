"""nnhal: the Android NNAPI driver interface (AIDL version 4) as a network service; what clients import.

Importing is lazy: `nnhal.types` and `nnhal.operations` load without grpc.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnhal.buffer import Buffer
    from nnhal.builder import ModelBuilder
    from nnhal.client import Device, Preparation, PreparedModel, connect
    from nnhal.errors import DeadObjectError, HalError, SessionLostError

__all__ = [
    "Buffer",
    "DeadObjectError",
    "Device",
    "HalError",
    "ModelBuilder",
    "Preparation",
    "PreparedModel",
    "SessionLostError",
    "connect",
]

_HOMES = {
    "Buffer": "nnhal.buffer",
    "DeadObjectError": "nnhal.errors",
    "Device": "nnhal.client",
    "HalError": "nnhal.errors",
    "ModelBuilder": "nnhal.builder",
    "Preparation": "nnhal.client",
    "PreparedModel": "nnhal.client",
    "SessionLostError": "nnhal.errors",
    "connect": "nnhal.client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'nnhal' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
