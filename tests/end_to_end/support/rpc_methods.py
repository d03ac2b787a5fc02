"""All RPC methods of a server, listed from the descriptors so that tests cannot miss one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from nnhal.services import SERVICES

_DESCRIPTORS = (
    *(service.descriptor for service in SERVICES.values()),
    *health_pb2.DESCRIPTOR.services_by_name.values(),
    *reflection_pb2.DESCRIPTOR.services_by_name.values(),
)


@dataclass(frozen=True)
class Method:
    """An RPC method. Its name has the form "Session.Open"."""

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
        """Call the method with request bytes, valid or not, and return its responses.

        Raises:
            grpc.RpcError: the call failed.
        """
        request: Any = iter(requests) if self.takes_stream else requests[0]
        kind = ("stream" if self.takes_stream else "unary", "stream" if self.descriptor.server_streaming else "unary")
        create_callable = getattr(channel, "_".join(kind))
        response = create_callable(self.path, None, self.response.FromString)(request, timeout=timeout)
        return self._responses(response) if self.descriptor.server_streaming else iter([response])

    def _responses(self, stream: Any) -> Iterator[Message]:
        """Yield all responses, but only the first of a stream that stays open."""
        try:
            for response in stream:
                yield response
                if self.name in _ENDLESS:
                    return
        finally:
            stream.cancel()


_ENDLESS = ("Session.Open", "Health.Watch")

METHODS = {method.name: method for descriptor in _DESCRIPTORS for method in map(Method, descriptor.methods)}
"""The methods by name."""
