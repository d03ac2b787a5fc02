"""Deadline, cancellation and early end of a gRPC call, and the times of its request."""

from types import TracebackType
from typing import Any

import grpc

from nnhal.errors import HalError
from nnhal.grpc_internals.server_calls import end_call
from nnhal.types import OMITTED
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns, to_absolute
from nnhal_service.grpc_support.errors import status_of
from nnhal_service.sessions.memory_quota import Reservation
from nnhal_service.sessions.session import Session

_UNLIMITED_S = (2**63 - 1) / 1e9


def call_deadline(context: grpc.ServicerContext) -> int:
    """Return the gRPC deadline of a call as an instant of CLOCK_BOOTTIME in ns; -1 if it has none."""
    remaining = context.time_remaining()
    if remaining is None or remaining >= _UNLIMITED_S:
        return OMITTED
    return now_ns() + int(max(remaining, 0.0) * 1e9)


def cancellation_of(context: grpc.ServicerContext) -> Cancellation:
    """Return a cancellation that is triggered when the client cancels its call."""
    cancellation = Cancellation()
    if not context.add_callback(cancellation.cancel):
        cancellation.cancel()
    return cancellation


class SessionCall:
    """Execution on the thread of a gRPC call. As a context manager, it counts against `session_calls`.

    Args:
        request: reservation of its request; None for a small one.
    """

    __slots__ = ("_context", "_request", "_session", "cancellation")

    def __init__(
        self,
        session: Session,
        context: grpc.ServicerContext,
        cancellation: Cancellation,
        request: Reservation | None = None,
    ) -> None:
        self._session = session
        self._context = context
        self._request = request
        self.cancellation = cancellation

    def __enter__(self) -> None:
        self._session.begin_call(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.end_call(self)
        if self._request is not None:
            self._request.release()

    def abort(self, error: HalError) -> None:
        """End the call with an error, although its thread goes on."""
        abort_call(self._context, error)


def abort_call(context: grpc.ServicerContext, error: HalError) -> None:
    """End a gRPC call with an error, from any thread. What its method returns or raises later is dropped.

    The client gets the status without details. When the server stops, and the connection ends with its last call, the
    text may be that of gRPC.
    """
    code, text = status_of(error)
    end_call(context, code.value[0], text)


def field_or_omitted(request: Any, field: str) -> int:
    """Return a time of a request in ns; -1 if the field is omitted."""
    return getattr(request, field) if request.HasField(field) else OMITTED


def earliest(relative_ns: int, call_deadline_ns: int) -> int:
    """Return the earlier of a relative deadline of the wire and the deadline of the call, as an instant in ns.

    -1 means none. Invalid numbers below -1 are returned as they are; the driver rejects them.
    """
    if relative_ns < OMITTED or call_deadline_ns == OMITTED:
        return to_absolute(relative_ns)
    return call_deadline_ns if relative_ns == OMITTED else min(to_absolute(relative_ns), call_deadline_ns)
