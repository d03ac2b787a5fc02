"""Unary calls of encoded messages with less work than those of gRPC, which has options that no call here uses.

Like `message_stream`, this uses parts of gRPC that are not public. Without them, the method of gRPC is used.
"""

from collections.abc import Callable
from typing import Any, Protocol

from nnhal.client.message_stream import NO_FLAGS, Metadata, rpc_error
from nnhal.client.security.token import AuthorizedMethod

try:
    from grpc._channel import _UnaryUnaryMultiCallable
    from grpc._cython import cygrpc  # type: ignore[attr-defined, unused-ignore]
except ImportError:  # another release of gRPC
    cygrpc = None


class UnaryMethod(Protocol):
    """Method that takes and returns encoded messages."""

    def __call__(self, message: bytes, *, metadata: Metadata = None) -> bytes:
        """Make a call, and wait for the response.

        Raises:
            grpc.RpcError: the call failed.
        """
        ...


def unary_method(method: Any) -> UnaryMethod:
    """Return a method that makes the calls of a method of a channel, which takes and returns encoded messages."""
    target, authorize = method, None
    if isinstance(method, AuthorizedMethod):
        target, authorize = method.method, method.authorize
    if cygrpc is None or not isinstance(target, _UnaryUnaryMultiCallable):
        ordinary: UnaryMethod = method
        return ordinary
    return DirectMethod(target, authorize)


class DirectMethod:
    """Method whose calls are single batches of operations, and whose events the calling thread reads.

    Args:
        method: the method of gRPC.
        authorize: returns the method, and the metadata with credentials; None if there are none.
    """

    def __init__(self, method: Any, authorize: Callable[[Any], tuple[Any, Metadata]] | None = None) -> None:
        self._authorize = authorize
        self._start = method._channel.segregated_call
        self._name = method._method
        self._context = method._context
        self._handle = method._registered_call_handle

    def __call__(self, message: bytes, *, metadata: Metadata = None) -> bytes:
        """See UnaryMethod."""
        if self._authorize is not None:
            _, metadata = self._authorize(metadata or ())
        operations = (
            cygrpc.SendInitialMetadataOperation(metadata, NO_FLAGS),
            cygrpc.SendMessageOperation(message, NO_FLAGS),
            cygrpc.SendCloseFromClientOperation(NO_FLAGS),
            cygrpc.ReceiveInitialMetadataOperation(NO_FLAGS),
            cygrpc.ReceiveMessageOperation(NO_FLAGS),
            cygrpc.ReceiveStatusOnClientOperation(NO_FLAGS),
        )
        propagate = cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS
        batch = ((operations, None),)
        call = self._start(propagate, self._name, None, None, metadata, None, batch, self._context, self._handle)
        *_, received, end = call.next_event().batch_operations
        if end.code() != cygrpc.StatusCode.ok:
            raise rpc_error(end.code(), end.details(), end.trailing_metadata())
        response: bytes | None = received.message()
        if response is None:
            raise rpc_error(cygrpc.StatusCode.internal, "the service has sent no response", ())
        return response
