"""Table of the services of the contract: their descriptors, stubs, and the functions that add them to a server.

Only the connections of the clients list stubs as well: as attributes, each with its own type.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from nnhal.v1 import (
    buffer_pb2,
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    cache_pb2,
    cache_pb2_grpc,
    device_pb2,
    device_pb2_grpc,
    execution_pb2,
    execution_pb2_grpc,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)


class Service(NamedTuple):
    """A service of the contract."""

    descriptor: ServiceDescriptor
    stub: type
    add_to_server: Callable[[Any, grpc.Server], None]


def _service(messages: Any, generated: Any, name: str) -> Service:
    return Service(
        messages.DESCRIPTOR.services_by_name[name],
        getattr(generated, f"{name}Stub"),
        getattr(generated, f"add_{name}Servicer_to_server"),
    )


SERVICES = {
    service.descriptor.name: service
    for service in (
        _service(session_pb2, session_pb2_grpc, "Session"),
        _service(device_pb2, device_pb2_grpc, "Device"),
        _service(prepared_model_pb2, prepared_model_pb2_grpc, "PreparedModel"),
        _service(execution_pb2, execution_pb2_grpc, "Execution"),
        _service(burst_pb2, burst_pb2_grpc, "Burst"),
        _service(buffer_pb2, buffer_pb2_grpc, "Buffer"),
        _service(fence_pb2, fence_pb2_grpc, "Fence"),
        _service(memory_pb2, memory_pb2_grpc, "MemoryService"),
        _service(cache_pb2, cache_pb2_grpc, "Cache"),
    )
}
"""All services, by their short name."""
