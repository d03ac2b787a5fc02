"""Calls that prepare a model, cancelled from another thread. The asyncio client has its own form: it cancels tasks."""

import threading
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc

from nnhal.client.core.prepared_model import missing_notify_error
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.sync.connection import Connection
from nnhal.errors import DeadObjectError, general_failure
from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2

if TYPE_CHECKING:
    Stream: TypeAlias = "grpc._CallIterator[device_pb2.PrepareModelEvent]"


class PreparationCall:
    """Calls of one preparation, one after another. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._cancelled = False

    def run(
        self,
        connection: Connection,
        method: "grpc.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> device_pb2.Notify:
        """Make a call and return the result that it reports.

        Raises:
            HalError: the call failed without a result.
        """
        try:
            return _read_notify(self._start(connection, method, request))
        except DeadObjectError as error:
            if self._cancelled:
                raise general_failure("the preparation was cancelled") from error
            raise

    def _start(
        self,
        connection: Connection,
        method: "grpc.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> "Stream":
        """Start a call.

        Raises:
            HalError: the connection has been closed.
        """
        try:
            stream = connection.start(method, request)
        except grpc.RpcError as error:
            raise hal_error(error) from error
        with self._lock:
            self._stream = stream
            if self._cancelled:
                stream.cancel()
        return stream

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the call in progress, and those to come."""
        with self._lock:
            self._cancelled = True
            if self._stream is not None:
                self._stream.cancel()


def _read_notify(stream: "Stream") -> device_pb2.Notify:
    """Return the result that a preparation reports.

    Raises:
        HalError: the call failed without a result.
    """
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
