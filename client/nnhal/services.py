"""Table of the services of the contract: their descriptors, stubs, and the functions that add them to a server.

Only the connections of the clients list stubs as well: as attributes, each with its own type.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor


class Service(NamedTuple):
    """A service of the contract."""

    descriptor: ServiceDescriptor
    stub: type
    add_to_server: Callable[[Any, grpc.Server], None]


def _service(module: str, name: str) -> Service:
    messages, generated = (importlib.import_module(f"nnhal.v1.{module}_{kind}") for kind in ("pb2", "pb2_grpc"))
    return Service(
        messages.DESCRIPTOR.services_by_name[name],
        getattr(generated, f"{name}Stub"),
        getattr(generated, f"add_{name}Servicer_to_server"),
    )


_MODULES = {
    "Session": "session",
    "Device": "device",
    "PreparedModel": "prepared_model",
    "Execution": "execution",
    "Burst": "burst",
    "Buffer": "buffer",
    "Fence": "fence",
    "MemoryService": "memory",
    "Cache": "cache",
    "Models": "models",
}
"""Modules of the contract, by the name of their service."""

SERVICES = {name: _service(module, name) for name, module in _MODULES.items()}
"""All services, by their short name."""
