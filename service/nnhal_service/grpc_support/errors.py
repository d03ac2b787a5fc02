"""Errors of RPCs: each failure becomes a gRPC status with an ErrorDetail in the trailer.

The contract has the table of codes (error.proto).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from nnhal.errors import DETAILS_KEY, HalError, exception_text, general_failure, out_of_memory, well_formed
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2
from nnhal_service.log import event
from nnhal_service.request_id import carry, current_id, handles_requests, request_id

_END = object()

OnError: TypeAlias = Callable[[HalError], None]

_log = logging.getLogger("nnhal.service")

MESSAGE_LENGTH = 256
"""Characters of the reason in the status message; the details have all of it. gRPC spells each character with up to
12 bytes, and trailers of more than 8 KB reach the client as another error."""

CODES = {
    ErrorStatus.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorStatus.DEVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.GENERAL_FAILURE: grpc.StatusCode.INTERNAL,
}
KIND_CODES = {
    ErrorKind.SESSION_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.UNKNOWN_HANDLE: grpc.StatusCode.NOT_FOUND,
    ErrorKind.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorKind.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorKind.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
}


def error_detail(error: HalError, request: str = "") -> error_pb2.ErrorDetail:
    """Return an error as a message of the contract, with the id of the request: by default that of this thread."""
    error = well_formed(error)
    return error_pb2.ErrorDetail(
        status=int(error.status),  # type: ignore[arg-type]
        reason=error.reason,
        rule=error.rule,
        kind=int(error.kind),  # type: ignore[arg-type]
        limit=error.limit,
        request=request or current_id(),
    )


def status_of(error: HalError) -> tuple[grpc.StatusCode, str]:
    """Return the status of a call that fails with an error: the code and the beginning of the reason."""
    error = well_formed(error)
    return KIND_CODES.get(ErrorKind(error.kind)) or CODES[error.status], str(error)[:MESSAGE_LENGTH]


def set_error(context: grpc.ServicerContext, error: HalError) -> tuple[grpc.StatusCode, str]:
    """Set the status and the trailer of a call, and return the code and the text for `ServicerContext.abort`."""
    code, text = status_of(error)
    packed = AnyMessage()
    packed.Pack(error_detail(error, request_id(context)))
    status = error_pb2.RpcStatus(code=code.value[0], message=text, details=[packed])
    context.set_code(code)
    context.set_details(text)
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    return code, text


def internal_error(error: BaseException) -> HalError:
    """Return the error for an unexpected exception, and log it unless memory is short."""
    if isinstance(error, MemoryError):
        return out_of_memory("the call", error)
    _log.error("internal error", exc_info=error)
    request = current_id()
    return general_failure(f"internal error: {exception_text(error)}{f' (request {request})' if request else ''}")


def _ignore(error: HalError) -> None:
    pass


def log_error(method: str, error: HalError) -> None:
    """Log a call that has failed. Operators see it at the level DEBUG, because most errors are those of clients."""
    error = well_formed(error)
    event(
        "call-failed",
        logging.DEBUG,
        method=method.removeprefix("nnhal.v1."),
        status=error.status.name,
        reason=error.reason,
    )


def report_error(method: str, error: BaseException, count_error: Callable[[str, HalError], None]) -> HalError:
    """Count and log the error of a call that does not end with it, such as one of a stream, and return it.

    An exception that is not a HalError is an internal error.
    """
    hal_error = error if isinstance(error, HalError) else internal_error(error)
    count_error(method, hal_error)
    log_error(method, hal_error)
    return hal_error


def _find_id(variables: Mapping[str, Any]) -> str:
    return request_id(variables["context"])


def map_errors(
    method: Callable[..., Any], caught: type[BaseException] = BaseException, on_error: OnError = _ignore
) -> Callable[..., Any]:
    """Wrap an RPC method so that its exceptions become the error of the call.

    That includes SystemExit and the like: gRPC leaves a call without an answer if its method raises one.

    Args:
        method: the method to wrap.
        caught: the exceptions to map; others are left to gRPC.
        on_error: called with each error.
    """

    @handles_requests(_find_id)
    def call(request: Any, context: grpc.ServicerContext, *rest: Any) -> Any:
        try:
            return method(request, context, *rest)
        except caught as error:
            status = _set_error(context, error, on_error)
        # outside of the except block no name refers to the exception: its traceback refers to this frame, and so would
        # keep all that the failed call has in hand until the garbage collector runs
        context.abort(*status)

    return call


def map_stream_errors(
    method: Callable[..., Any], caught: type[BaseException] = BaseException, on_error: OnError = _ignore
) -> Callable[..., Any]:
    """Wrap an RPC method that responds with a stream, as `map_errors` does for the others."""

    @handles_requests(_find_id)
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        responses: Iterator[Any] | None = None
        while True:
            try:
                if responses is None:
                    responses = iter(method(request, context))
                response = next(responses, _END)
            except caught as error:
                status = _set_error(context, error, on_error)
                break
            if response is _END:
                return
            yield response  # outside of `try`: the stream of a lost client is closed with GeneratorExit
        context.abort(*status)

    return call


def _set_error(context: grpc.ServicerContext, error: BaseException, on_error: OnError) -> tuple[grpc.StatusCode, str]:
    with carry(context):
        hal_error = _hal_error(error, context)
        on_error(hal_error)
        error.__traceback__ = None  # its frames may refer to the error, and so keep all objects of the call
        return set_error(context, hal_error)


def _hal_error(error: BaseException, context: grpc.ServicerContext) -> HalError:
    if isinstance(error, HalError):
        return error
    # reading from the stream of a client that has disconnected raises as well
    return internal_error(error) if context.is_active() else general_failure("the client has disconnected")
