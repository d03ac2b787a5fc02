"""Calls of gRPC as threads make them. `nnhal.client.aio.grpc_calls` has the same names for asyncio.

Ctrl-C raises anywhere in the main thread. An interrupt in gRPC's own code may leave a lock of the channel locked, so
that its next call never ends. After each interrupted call, the session therefore continues on another channel.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import grpc

from nnhal.client.core.burst import TransportClosed, burst_ended_error
from nnhal.client.core.prepared_model import missing_notify_error
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.core.session import connection_replaced_error
from nnhal.client.message_stream import MessageStream, open_stream
from nnhal.client.security.token import AuthorizedMethod
from nnhal.client.sync.memory_objects import MemoryObjects
from nnhal.errors import DeadObjectError, HalError, general_failure
from nnhal.grpc_internals.direct_stream import free_cancelled_streams
from nnhal.grpc_internals.unary_call import direct_unary
from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, session_pb2

if TYPE_CHECKING:
    PrepareStream: TypeAlias = "grpc._CallIterator[device_pb2.PrepareModelEvent]"

T = TypeVar("T")

CHANNEL_CLOSED = ValueError
"""Error of a call on a channel that another thread has closed."""
INTERRUPTS = (KeyboardInterrupt, SystemExit)
"""Exceptions that handlers of signals raise anywhere in the main thread."""

_CANCEL_S = 1.0
"""Seconds that a cancelled call may take to end."""

_INTERRUPTED: list[object] = []
"""Channels on which a call was interrupted or lost, or their owners. They stay: their finalizers may block."""


class GrpcCalls(MemoryObjects):
    """Base of connections: the part of their calls that is different for tasks and for threads."""

    _channel: grpc.Channel
    _stream: Any
    _lock: threading.RLock
    _closed: bool
    member: str
    burst_stream: Callable[..., Any]
    _stuck: grpc.Channel | None = None  # a channel with a call that does not end

    def _open_channel(self) -> None:
        """Open another channel for all calls."""
        raise NotImplementedError

    def _open_resumed_stream(self) -> None:
        """Start the call that resumes the session."""
        raise NotImplementedError

    def _resume(self, ended: Any, code: grpc.StatusCode) -> None:
        """Resume the session after its stream has ended."""
        raise NotImplementedError

    def _read_members(self, stream: Any) -> None:
        """Read which other services there are, until the stream ends."""
        raise NotImplementedError

    def _first_event(self, stream: Any, timeout: float) -> session_pb2.SessionEvent | None:
        """Return the first event of the session's stream, or None if it has none.

        A thread waits for it: while a service is replaced, gRPC may lose a call, which then does not even end when it
        is cancelled. The channel is left alone in that case.

        Raises:
            grpc.RpcError: the call failed.
            TimeoutError: there was no event within `timeout` seconds.
        """
        results: queue.SimpleQueue[session_pb2.SessionEvent | grpc.RpcError | None] = queue.SimpleQueue()

        def read() -> None:
            try:
                results.put(next_event(stream))
            except grpc.RpcError as error:
                results.put(error)

        threading.Thread(target=read, name="nnhal-open", daemon=True).start()
        try:
            result = results.get(timeout=timeout)
        except queue.Empty:
            stream.cancel()
            try:
                results.get(timeout=_CANCEL_S)
            except queue.Empty:
                self._stuck = self._channel
                _INTERRUPTED.extend((self._channel, stream))
            raise TimeoutError from None
        if isinstance(result, grpc.RpcError):
            raise result
        return result

    def _watch_stream(self) -> None:
        """Resume the session when its stream ends, and read the events of the stream.

        The caller has no lock: the stream of a broken channel calls back at once.
        """
        self._stream.add_done_callback(lambda ended: self._resume(ended, ended.code()))
        if self.member:  # otherwise there is nothing to read, which costs a thread
            reader = threading.Thread(
                target=self._read_members, args=(self._stream,), name="nnhal-fleet-members", daemon=True
            )
            reader.start()

    def replace_channel(self, *interrupted: object) -> None:
        """Continue the session on another channel, after Ctrl-C has interrupted a call.

        `interrupted` is the call, if it is a stream.
        """
        _INTERRUPTED.extend(interrupted)
        with self._lock:
            if self._closed:
                return
            _INTERRUPTED.extend((self._channel, self._stream))
            self._open_channel()
            self._open_resumed_stream()
        self._watch_stream()

    @contextlib.contextmanager
    def _replacing_channel(self) -> Iterator[None]:
        """Continue on another channel if what is done within is interrupted."""
        try:
            yield
        except INTERRUPTS:
            self.replace_channel()
            raise

    def _call_errors(self) -> "CallErrors":
        """Convert the errors of the calls within to HAL errors, and continue on another channel after an interrupt."""
        return CallErrors(self)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """Close the channel if the work within fails. After an interrupt it stays, because closing it may never end."""
        try:
            yield
        except INTERRUPTS:
            _INTERRUPTED.extend((self, self._channel))  # its stream may not have been set yet
            raise
        except HalError:
            self._close(self._channel)
            raise

    def close_channel(self) -> None:
        """Close the channel, which cuts off the calls in progress. A second call does nothing."""
        self._stream.cancel()
        self._close(self._channel)
        free_cancelled_streams()

    def _close(self, channel: grpc.Channel) -> None:
        if channel is not self._stuck:  # closing it would wait for its call
            channel.close()

    def open_burst_stream(self) -> "BurstStream":
        """Open the stream of a burst.

        Raises:
            HalError: the service has ended, or the connection has been closed.
        """
        return BurstStream(self, self.call(open_stream, self.burst_stream))


class CallErrors:
    """Context of calls, see `GrpcCalls._call_errors`. A generator would take three times as long for each call."""

    __slots__ = ("_connection",)

    def __init__(self, connection: GrpcCalls) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, INTERRUPTS):
            self._connection.replace_channel()
        elif isinstance(error, grpc.RpcError):
            raise hal_error(error) from error
        elif isinstance(error, ValueError) and ("closed channel" in str(error) or "Channel closed" in str(error)):
            raise connection_replaced_error() from None  # another thread has closed the channel


def next_event(stream: Any) -> session_pb2.SessionEvent | None:
    """Return the next event of the session's stream, or None at its end."""
    event: session_pb2.SessionEvent | None = next(stream, None)
    return event


class BurstStream:
    """Stream of encoded messages of a burst. One thread may send while another one receives."""

    def __init__(self, connection: GrpcCalls, stream: MessageStream) -> None:
        self._connection = connection
        self._stream = stream
        self.cancel = stream.cancel

    def send(self, message: bytes) -> None:
        """Send a message. If the stream has ended, `receive` says so."""
        try:
            self._stream.send(message)
        except INTERRUPTS:
            self._connection.replace_channel(self._stream)
            raise

    def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            TransportClosed: the stream has ended or failed.
        """
        try:
            return self._stream.receive()
        except StopIteration:
            raise TransportClosed(burst_ended_error()) from None
        except grpc.RpcError as failed:
            raise TransportClosed(hal_error(failed)) from failed
        except INTERRUPTS:
            self._connection.replace_channel(self._stream)
            raise


def encoded_method(channel: Any, path: str) -> Callable[..., bytes]:
    """Return a method of a channel that takes and returns encoded messages."""
    method = channel.unary_unary(path)
    if isinstance(method, AuthorizedMethod):
        method.method = direct_unary(method.method)
        return method
    direct: Callable[..., bytes] = direct_unary(method)
    return direct


def start_call(method: "grpc.UnaryUnaryMultiCallable[Any, T]", request: Any, metadata: Any) -> "grpc.Future[T]":
    """Start a unary call."""
    return method.future(request, metadata=metadata)


def finish_call(call: "grpc.Future[T]") -> T:
    """Wait for the end of a call, and cancel it if that is interrupted."""
    try:
        return call.result()
    finally:
        call.cancel()  # does nothing to a call that has ended


class PreparationCall:
    """Calls of one preparation, one after another. Thread safe.

    Attributes:
        cancelled: whether `cancel` was called.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: PrepareStream | None = None
        self.cancelled = False

    def run(
        self,
        connection: GrpcCalls,
        method: "grpc.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> device_pb2.Notify:
        """Make a call and return the result that it reports.

        Raises:
            HalError: the call failed without a result.
        """
        try:
            stream: PrepareStream = connection.call(method, request)
            with self._lock:
                self._stream = stream
                if self.cancelled:
                    stream.cancel()
            return _read_notify(stream)
        except DeadObjectError as error:
            if self.cancelled:
                raise general_failure("the preparation was cancelled") from error
            raise

    def cancel(self) -> None:
        """Cancel the call in progress, and those to come."""
        with self._lock:
            self.cancelled = True
            if self._stream is not None:
                self._stream.cancel()


def _read_notify(stream: "PrepareStream") -> device_pb2.Notify:
    """Return the result that a preparation reports."""
    unavailable: device_pb2.Notify | None = None
    try:
        for event in stream:
            if event.WhichOneof("event") == "notify":
                if int(event.notify.status) == ErrorStatus.DEVICE_UNAVAILABLE:
                    unavailable = event.notify  # the end says whether the session is lost
                    continue
                # only the end follows, so do not wait for it; a stream without references would be cancelled
                cast("grpc.Future[Any]", stream).add_done_callback(_keep_alive)
                return event.notify
    except grpc.RpcError as error:
        raise hal_error(error) from error
    if unavailable is None:
        raise missing_notify_error()
    return unavailable


def _keep_alive(stream: "grpc.Future[Any]") -> None:
    """Do nothing. As a registered callback it keeps the stream alive until it ends."""
