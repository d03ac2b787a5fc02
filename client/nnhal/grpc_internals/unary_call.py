"""Unary calls of encoded messages with less work than those of gRPC, which has options that no call here uses.

Decision 7 in docs/decisions.md has the measurements.
"""

from typing import Any

from nnhal.grpc_internals.direct_stream import Metadata, cygrpc, rpc_error
from nnhal.grpc_internals.gate import private_parts

_PARTS = private_parts(
    functions={},
    members={
        "_channel._UnaryUnaryMultiCallable": "_channel _context _method _registered_call_handle",
        "_cython.cygrpc": "SendCloseFromClientOperation",
    },
)
_NO_FLAGS = 0


def direct_unary(method: Any) -> Any:
    """Return a method that makes the calls of a method of a channel, which takes and returns encoded messages."""
    if cygrpc is None or not _PARTS or not isinstance(method, _PARTS["_channel._UnaryUnaryMultiCallable"]):
        return method
    return DirectUnary(method)


class DirectUnary:
    """Method whose calls are single batches of operations, and whose events the calling thread reads."""

    def __init__(self, method: Any) -> None:
        self._start = method._channel.segregated_call
        self._name = method._method
        self._context = method._context
        self._handle = method._registered_call_handle

    def __call__(self, message: bytes, *, metadata: Metadata = None) -> bytes:
        """Make a call, and wait for the response.

        Raises:
            grpc.RpcError: the call failed.
        """
        operations = (
            cygrpc.SendInitialMetadataOperation(metadata, _NO_FLAGS),
            cygrpc.SendMessageOperation(message, _NO_FLAGS),
            cygrpc.SendCloseFromClientOperation(_NO_FLAGS),
            cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),
            cygrpc.ReceiveMessageOperation(_NO_FLAGS),
            cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),
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
