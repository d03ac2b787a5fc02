"""How calls end: every failure becomes a gRPC error with the nearest code, and an ErrorDetail in the trailer.

The table stands in the contract, error.proto. Also here: deadlines of calls, and the answer of what is not offered.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from driver.cancellation import Cancellation
from driver.deadline import now_ns
from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal.types import OMITTED, ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2

_log = logging.getLogger("nnhal.service")

DETAILS_KEY = "grpc-status-details-bin"

MESSAGE_LENGTH = 256
"""Characters of a reason outside of the details: gRPC spells each of them with up to 12 bytes, and trailers of more
than 8 KB reach the client as another error."""

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
}

_INT64_MAX = 2**63 - 1
_UNLIMITED_S = _INT64_MAX / 1e9

Method = TypeVar("Method", bound=Callable[..., Any])
T = TypeVar("T")


def error_detail(error: HalError) -> error_pb2.ErrorDetail:
    """An error as the contract's message."""
    return error_pb2.ErrorDetail(
        status=int(error.status),  # type: ignore[arg-type]
        reason=error.reason,
        rule=error.rule,
        kind=int(error.kind),  # type: ignore[arg-type]
        limit=error.limit,
    )


def fail(context: grpc.ServicerContext, error: HalError) -> tuple[grpc.StatusCode, str]:
    """Gives a call its error; whoever called this ends the call.

    Returns:
        What gRPC itself is told: the code, and the beginning of the reason. All of it is in the details.
    """
    code = KIND_CODES.get(ErrorKind(error.kind)) or CODES[error.status]
    text = str(error)[:MESSAGE_LENGTH]
    packed = AnyMessage()
    packed.Pack(error_detail(error))
    status = error_pb2.RpcStatus(code=code.value[0], message=text, details=[packed])
    context.set_code(code)
    context.set_details(text)
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    return code, text


def abort(context: grpc.ServicerContext, error: HalError) -> NoReturn:
    """Ends a call with its error."""
    context.abort(*fail(context, error))


def internal(error: Exception) -> HalError:
    """What a client is told when memory is short; else this software has a defect."""
    if isinstance(error, MemoryError):
        return out_of_memory("the call", error)
    _log.error("internal error", exc_info=error)
    return general_failure(f"the service failed: {type(error).__name__}: {error}")


def answering(method: Method) -> Method:
    """Decorates an RPC method: errors that it raises become the call's error."""

    @functools.wraps(method)
    def call(self: object, request: Any, context: grpc.ServicerContext, *rest: Any) -> Any:
        try:
            return method(self, request, context, *rest)
        except HalError as error:
            ended = fail(context, error)
        except Exception as error:
            # reading from a stream whose client has gone raises, and nobody is there to be told
            ended = fail(context, internal(error) if context.is_active() else general_failure("the client has gone"))
        # out here no name holds the error: its traceback holds this frame, and all that the failed call had in hand
        context.abort(*ended)

    return call  # type: ignore[return-value]


def answering_each(method: Method) -> Method:
    """Decorates an RPC method that answers with a stream: errors that it raises meanwhile become the call's error."""

    @functools.wraps(method)
    def call(self: object, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from method(self, requests, context)
            return
        except HalError as error:
            ended = fail(context, error)
        context.abort(*ended)

    return call  # type: ignore[return-value]


def call_deadline(context: grpc.ServicerContext) -> int:
    """A call's own gRPC deadline as an instant of CLOCK_BOOTTIME; -1 where it has none."""
    remaining = context.time_remaining()
    if remaining is None or remaining >= _UNLIMITED_S:
        return OMITTED
    return now_ns() + int(max(remaining, 0.0) * 1e9)


def earlier(relative_ns: int, call_deadline_ns: int) -> int:
    """The earlier of a wire deadline (-1: none) and that of a call, as an instant.

    Numbers below -1 are passed on for the driver to refuse.
    """
    if relative_ns < OMITTED or call_deadline_ns == OMITTED:
        return instant(relative_ns)
    return call_deadline_ns if relative_ns == OMITTED else min(instant(relative_ns), call_deadline_ns)


def cancelled_by(context: grpc.ServicerContext) -> Cancellation:
    """What gives up the work of a call whose client gives it up."""
    cancellation = Cancellation()
    if not context.add_callback(cancellation.cancel):
        cancellation.cancel()
    return cancellation


def optional_ns(request: Any, field: str) -> int:
    """A time of a request in nanoseconds; -1 where it is left out."""
    return getattr(request, field) if request.HasField(field) else OMITTED


def instant(relative_ns: int) -> int:
    """A wire time as an instant of CLOCK_BOOTTIME, for work that goes on after its call.

    -1 is none; numbers below it are passed on for the driver to refuse.
    """
    return relative_ns if relative_ns <= OMITTED else min(now_ns() + relative_ns, _INT64_MAX)


def complete(servicer: Callable[..., T]) -> Callable[..., T]:
    """A servicer class whose missing methods answer UNIMPLEMENTED with a reason."""
    assert isinstance(servicer, type)
    name = servicer.__name__.removesuffix("Servicer")
    missing = {
        method: _unimplemented(f"{name}.{method}")
        for base in servicer.__mro__[:-1]
        for method in vars(base)
        if not method.startswith("_") and not _is_offered(servicer, method)
    }
    return type(servicer.__name__, (servicer,), missing)


class _OnPool:
    """A handler that grpc runs on a thread pool of its own."""

    def __init__(self, method: Callable[..., Any], pool: ThreadPoolExecutor) -> None:
        functools.update_wrapper(self, method)  # with what it is marked with
        self.experimental_thread_pool = pool
        self._method = method

    def __call__(self, *arguments: Any) -> Any:
        return self._method(*arguments)


def on_pool(servicer: T, pool: ThreadPoolExecutor, *methods: str) -> T:
    """Moves methods that wait for their client to another pool, so that slow clients cannot take all threads."""
    for method in methods:
        setattr(servicer, method, _OnPool(getattr(servicer, method), pool))
    return servicer


def _is_offered(servicer: type, method: str) -> bool:
    """Whether a method is more than what protoc generates."""
    return not getattr(servicer, method).__module__.endswith("_pb2_grpc")


def _unimplemented(name: str) -> Callable[..., NoReturn]:
    def call(self: object, request: object, context: grpc.ServicerContext) -> NoReturn:
        reason = f"{name} is not offered by this release"
        abort(context, HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.UNIMPLEMENTED))

    return call
