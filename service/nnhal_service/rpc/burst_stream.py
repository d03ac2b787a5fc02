"""Streams of executions: how many may be open, and when they end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from nnhal.errors import HalError
from nnhal_service.grpc_support.call_context import abort_call, call_deadline
from nnhal_service.identity.identity import client_name
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.servicer import GrpcCall
from nnhal_service.sessions.cancellation_scope import CancellationScope
from nnhal_service.sessions.client_slots import ClientSlots
from nnhal_service.sessions.session import STOPPING, Session, stopping


class StreamCall(GrpcCall):
    """Execution on a stream, which has a thread of its own."""

    is_stream = True


class ServedStream:
    """Stream that ends with the sessions that it uses. When they drain, the call in progress is finished."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._deadline_ns = call_deadline(context)
        self._executions = CancellationScope()
        if not context.add_callback(self._executions.cancel):
            self._executions.cancel()
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        self._is_busy = False
        self._drain_reason = ""

    @property
    def is_bound(self) -> bool:
        """True if the stream ends with a session, because it has had a call."""
        return bool(self._sessions)

    def bind(self, session: Session) -> None:
        """End the stream with a session."""
        if session not in self._sessions:
            self._sessions.append(session)
            session.on_close(self.end)
            session.on_drain(self._drain)

    def unbind(self) -> None:
        """Forget the sessions: the stream has ended."""
        for session in self._sessions:
            session.off_close(self.end)
            session.off_drain(self._drain)

    def begin_call(self, path: str, received: int) -> StreamCall:
        """Note that a call of so many bytes has arrived, and return it. It is cancelled with the stream."""
        with self._lock:
            self._is_busy = True
        return StreamCall(path, received, self._context, self._deadline_ns, self._executions.next())

    def end_call(self) -> None:
        """Note that the response to a call has been sent, and end the stream if a session drains.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the service stops.
        """
        with self._lock:
            self._is_busy = False
            reason = self._drain_reason
        if reason == STOPPING:
            raise stopping()
        if reason:
            self.end(reason)

    def _drain(self, reason: str) -> None:
        with self._lock:
            self._drain_reason = reason
            is_idle = not self._is_busy
        if is_idle:
            self.end(reason)

    def end(self, reason: str) -> None:
        """End the stream. Never blocks."""
        if reason == STOPPING:
            abort_call(self._context, stopping())
        else:
            self._context.cancel()


class OpenStreams:
    """The open streams of the service, each of which occupies a thread. Thread safe."""

    def __init__(self, parts: ServiceParts) -> None:
        self._authentication = parts.sessions.authentication
        self._slots = ClientSlots(parts.limits, "burst_streams")
        self._streams: set[ServedStream] = set()
        self._lock = threading.Lock()

    @contextmanager
    def open(self, context: grpc.ServicerContext) -> Iterator[ServedStream]:
        """Count a stream for the duration of the context.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit burst_streams. GENERAL_FAILURE of kind UNAUTHENTICATED.
        """
        client = client_name(self._authentication.identify(context).identity, context.peer())
        self._slots.acquire(client)
        stream = ServedStream(context)
        try:
            with self._lock:
                self._streams.add(stream)
            yield stream
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.unbind()
            self._slots.release(client)

    def end_unbound(self) -> None:
        """End the streams that no session ends, because they have had no call. The service stops."""
        with self._lock:
            unbound = [stream for stream in self._streams if not stream.is_bound]
        for stream in unbound:
            stream.end(STOPPING)


def until_disconnected(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Yield requests until the stream ends. gRPC raises various exceptions when the client disconnects."""
    try:
        yield from requests
    except HalError:
        raise
    except Exception:
        if context.is_active():
            raise
