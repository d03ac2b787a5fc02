"""What a failed gRPC call means to a client: the error in its trailer, or a table for calls that have none."""

from typing import TypeAlias

import grpc
import grpc.aio

from nnhal.enums import ErrorKind, ErrorStatus
from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.v1 import error_pb2

DETAILS_KEY = "grpc-status-details-bin"

_WITHOUT_DETAILS = {
    grpc.StatusCode.CANCELLED: (ErrorStatus.GENERAL_FAILURE, "the call was cancelled"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the service did not answer in time"),
    grpc.StatusCode.INVALID_ARGUMENT: (ErrorStatus.INVALID_ARGUMENT, "the service refused the call"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, "a message is too large"),
    grpc.StatusCode.UNAVAILABLE: (ErrorStatus.DEVICE_UNAVAILABLE, "the service cannot be reached"),
    grpc.StatusCode.UNIMPLEMENTED: (ErrorStatus.GENERAL_FAILURE, "the service does not offer this call"),
}


_Failed: TypeAlias = grpc.Call | grpc.aio.AioRpcError
"""Errors that know how their call ended: those of both kinds of channels."""


def hal_error(error: grpc.RpcError) -> HalError:
    """The HalError behind a failed call.

    Returns:
        what the service said, if it said it; else by the gRPC code, DeadObjectError where the service is gone.
    """
    detail = _detail(error)
    if detail is None:
        return _without_details(error)
    kind = SessionLostError if int(detail.kind) == ErrorKind.SESSION_LOST else HalError
    return kind(detail.status, detail.reason, rule=detail.rule, kind=detail.kind, limit=detail.limit)


def _detail(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    if not isinstance(error, _Failed):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            assert isinstance(value, bytes)
            for packed in error_pb2.RpcStatus.FromString(value).details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return detail
    return None


def _without_details(error: grpc.RpcError) -> HalError:
    if not isinstance(error, _Failed):
        return HalError(ErrorStatus.GENERAL_FAILURE, str(error))
    code = error.code()
    status, meaning = _WITHOUT_DETAILS.get(code, (ErrorStatus.GENERAL_FAILURE, "the call failed"))
    reason = f"{meaning} ({code.name}: {error.details()})"
    return (DeadObjectError if code == grpc.StatusCode.UNAVAILABLE else HalError)(status, reason)
