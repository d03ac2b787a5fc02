"""The clients of a service: `nnhal.client` is the synchronous one, and `nnhal.aio` the one for asyncio.

Attributes:
    core: code that both clients share and that never waits.
    fallback: models that run partly on the client's machine; shared by both clients, and never waits.
    shm: connections to a service on the same machine, shared by both clients.
    sync, aio: the clients themselves, with the same modules.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnhal.client.core.arrays import Inputs, Outputs
    from nnhal.client.sync.buffer import Buffer
    from nnhal.client.sync.device import Device, PartitionedModel, Preparation, PreparedModel, connect

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "PartitionedModel", "Preparation", "PreparedModel", "connect"]


def __getattr__(name: str) -> object:
    """Import the synchronous client on first use, so that the asyncio client loads without it."""
    if name not in __all__:
        raise AttributeError(f"module 'nnhal.client' has no attribute {name!r}")
    return getattr(importlib.import_module("nnhal.client.sync.device"), name)
