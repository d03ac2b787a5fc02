"""Every method that a server has, found by reflection, so that tests cannot forget one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from nnhal.v1 import (
    buffer_pb2,
    burst_pb2,
    cache_pb2,
    device_pb2,
    execution_pb2,
    fence_pb2,
    memory_pb2,
    prepared_model_pb2,
    session_pb2,
)

_FILES = (
    session_pb2,
    memory_pb2,
    device_pb2,
    prepared_model_pb2,
    execution_pb2,
    burst_pb2,
    buffer_pb2,
    fence_pb2,
    cache_pb2,
    health_pb2,
    reflection_pb2,
)


@dataclass(frozen=True)
class Method:
    """One method. `name`: "Session.Open"."""

    descriptor: MethodDescriptor

    @property
    def name(self) -> str:
        return f"{self.descriptor.containing_service.name}.{self.descriptor.name}"

    @property
    def path(self) -> str:
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def takes_stream(self) -> bool:
        return bool(self.descriptor.client_streaming)

    @property
    def request(self) -> type[Message]:
        return GetMessageClass(self.descriptor.input_type)

    @property
    def response(self) -> type[Message]:
        return GetMessageClass(self.descriptor.output_type)

    def call(self, channel: grpc.Channel, requests: Sequence[bytes], timeout: float) -> Iterator[Message]:
        """Calls with bytes, whatever they are; gives every response.

        Raises:
            grpc.RpcError: the call failed.
        """
        request: Any = iter(requests) if self.takes_stream else requests[0]
        kind = ("stream" if self.takes_stream else "unary", "stream" if self.descriptor.server_streaming else "unary")
        make = getattr(channel, "_".join(kind))
        answer = make(self.path, None, self.response.FromString)(request, timeout=timeout)
        return self._events(answer) if self.descriptor.server_streaming else iter([answer])

    def _events(self, stream: Any) -> Iterator[Message]:
        """All responses; the first alone of streams that stay open."""
        try:
            for event in stream:
                yield event
                if self.name in _ENDLESS:
                    return
        finally:
            stream.cancel()


_ENDLESS = ("Session.Open", "Health.Watch")

METHODS = {
    method.name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in map(Method, service.methods)
}
"""By name."""
