"""Conversion of failed gRPC calls to HAL errors: from the error in the trailer, or else by the status code."""

from typing import TypeAlias

import grpc
import grpc.aio

from nnhal.errors import DETAILS_KEY, DeadObjectError, HalError, SessionLostError, reported_type
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2

_WITHOUT_DETAILS = {
    grpc.StatusCode.CANCELLED: (ErrorStatus.DEVICE_UNAVAILABLE, "the call was cut off"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the service did not answer in time"),
    grpc.StatusCode.INVALID_ARGUMENT: (ErrorStatus.INVALID_ARGUMENT, "the service refused the call"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, "a message is too large"),
    grpc.StatusCode.UNAVAILABLE: (ErrorStatus.DEVICE_UNAVAILABLE, "the service cannot be reached"),
    grpc.StatusCode.UNIMPLEMENTED: (ErrorStatus.GENERAL_FAILURE, "the service does not offer this call"),
}
"""Status and reason of errors without details, by gRPC status code."""
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""Codes of calls that were lost with their connection or service: a service that stops cancels the last ones."""
_ERRORS: dict[int, type[HalError]] = {ErrorKind.SESSION_LOST: SessionLostError, ErrorKind.STOPPING: DeadObjectError}

FinishedCall: TypeAlias = grpc.Call | grpc.aio.AioRpcError
"""Errors that carry the status of their call: those of synchronous and of asyncio channels."""


def hal_error(error: grpc.RpcError) -> HalError:
    """Return the HalError behind a failed call.

    Returns:
        the error that the service reported, if it did. Otherwise an error for the gRPC status code, which is a
        DeadObjectError if the service cannot be reached.
    """
    detail = _find_detail(error)
    return _error_without_details(error) if detail is None else error_from_detail(detail)


def error_from_detail(detail: error_pb2.ErrorDetail) -> HalError:
    """Return the error that the service reported."""
    error = _ERRORS.get(int(detail.kind)) or reported_type(detail.status)
    return error(
        detail.status,
        detail.reason,
        rule=detail.rule,
        kind=detail.kind,
        limit=detail.limit,
        request=detail.request,
    )


def _find_detail(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    if not isinstance(error, FinishedCall):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            assert isinstance(value, bytes)
            for packed in error_pb2.RpcStatus.FromString(value).details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return detail
    return None


def _error_without_details(error: grpc.RpcError) -> HalError:
    if not isinstance(error, FinishedCall):
        return HalError(ErrorStatus.GENERAL_FAILURE, str(error))
    code = error.code()
    status, meaning = _WITHOUT_DETAILS.get(code, (ErrorStatus.GENERAL_FAILURE, "the call failed"))
    reason = f"{meaning} ({code.name}: {error.details()})"
    return (DeadObjectError if code in _LOST else HalError)(status, reason)
