"""Streams of encoded messages in both directions, which a thread sends and receives on by itself.

A stream of gRPC has a thread that sends, and its channel has one that reads events. Each message wakes both, which
takes as long as a small model. A unary call needs neither: the thread that waits for its response reads its events.
`DirectStream` does this for a stream, with the parts of gRPC that unary calls are made of. Decision 7 in
docs/decisions.md has the measurements.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import grpc

from nnhal.grpc_internals.gate import private_parts

_PARTS = private_parts(
    functions={
        "_channel._InactiveRpcError": "state",
        "_channel._RPCState": "due initial_metadata trailing_metadata code details",
        "_cython.cygrpc.Channel.segregated_call": "self flags method host deadline metadata credentials "
        "operationses_and_tags context registered_call_handle",
        "_cython.cygrpc.SegregatedCall.operate": "self operations tag",
        "_cython.cygrpc.SegregatedCall.cancel": "self code details",
        "_cython.cygrpc.SegregatedCall.next_event": "self",
    },
    members={
        "_channel._StreamStreamMultiCallable": "_channel _context _method _registered_call_handle",
        "_common": "CYGRPC_STATUS_CODE_TO_STATUS_CODE",
        "_cython.cygrpc": "PropagationConstants ReceiveInitialMetadataOperation ReceiveMessageOperation "
        "ReceiveStatusOnClientOperation SendInitialMetadataOperation SendMessageOperation StatusCode",
    },
)
cygrpc: Any = _PARTS.get("_cython.cygrpc")

Metadata: TypeAlias = Sequence[tuple[str, str]] | None

_NO_FLAGS = 0
_STARTED, _ANSWERED, _SENT, _RECEIVED, _ENDED = "started", "answered", "sent", "received", "ended"
"""Tags of the events of a call."""

_CANCELLED: "deque[DirectStream]" = deque()
"""Cancelled streams whose last events have not been read. Finalizers may append them."""


def allows_direct_stream(method: Callable[..., Any]) -> bool:
    """Return whether a method of a channel can open a DirectStream."""
    return bool(_PARTS) and isinstance(method, _PARTS["_channel._StreamStreamMultiCallable"])


class DirectStream:
    """Stream whose events are read by the thread that receives.

    gRPC sends one message at a time. Further ones wait in an outbox for the event that says that it is sent.
    """

    def __init__(self, method: Any, metadata: Metadata) -> None:
        free_cancelled_streams()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._outbox: deque[bytes] = deque()
        self._is_sending = self._is_receiving = self._is_interrupted = False
        self._end: Any = None
        first: Any = (
            ((cygrpc.SendInitialMetadataOperation(metadata, _NO_FLAGS),), _STARTED),
            ((cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),), _ANSWERED),
            ((cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),), _ENDED),
        )
        self._due = len(first)  # events that have not been read
        self._call = method._channel.segregated_call(
            cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            method._method,
            None,
            None,
            metadata,
            None,
            first,
            method._context,
            method._registered_call_handle,
        )

    def send(self, message: bytes) -> None:
        """See QueuedStream in nnhal.client.message_stream."""
        try:
            with self._lock:
                if self._is_sending:
                    self._outbox.append(message)
                else:
                    self._is_sending = self._start(cygrpc.SendMessageOperation(message, _NO_FLAGS), _SENT)
        except BaseException:
            self._is_interrupted = True
            raise

    def receive(self) -> bytes:
        """See QueuedStream in nnhal.client.message_stream."""
        try:
            with self._reading:
                with self._lock:
                    if not self._is_receiving:
                        self._is_receiving = self._start(cygrpc.ReceiveMessageOperation(_NO_FLAGS), _RECEIVED)
                while self._due:
                    message = self._read_event()
                    if message is not None:
                        return message
        except BaseException:
            self._is_interrupted = True
            raise
        raise self._error()

    def _start(self, operation: Any, tag: str) -> bool:
        """Start an operation, whose event has a tag. Return False if the call has ended: there is no event then."""
        started: bool = self._call.operate((operation,), tag)
        self._due += started
        return started

    def _read_event(self) -> bytes | None:
        """Wait for an event, and return the message that it brings, if any."""
        event = self._call.next_event()
        (result,) = event.batch_operations
        with self._lock:
            self._due -= 1
            if event.tag == _RECEIVED:
                self._is_receiving = False
                message: bytes | None = result.message()
                return message
            if event.tag == _SENT:
                self._is_sending = False
                if self._outbox:
                    operation = cygrpc.SendMessageOperation(self._outbox.popleft(), _NO_FLAGS)
                    self._is_sending = self._start(operation, _SENT)
            elif event.tag == _ENDED:
                self._end = result
        return None

    def _error(self) -> Exception:
        """Return the exception that tells how the stream has ended."""
        if self._end.code() == cygrpc.StatusCode.ok:
            return StopIteration()
        return rpc_error(self._end.code(), self._end.details(), self._end.trailing_metadata())

    def cancel(self) -> None:
        """See QueuedStream in nnhal.client.message_stream."""
        code = grpc.StatusCode.CANCELLED
        self._call.cancel(code.value[0], "the client has closed the stream")
        if not self._is_interrupted:  # otherwise, events may be lost
            _CANCELLED.append(self)

    def read_last_events(self) -> None:
        """Read the events that are left when the call has ended. Only then does gRPC free it."""
        with self._reading:
            while self._due:
                self._read_event()


def rpc_error(code: int, details: str, trailing_metadata: Any) -> Exception:
    """Return the exception of a call that has ended with the number of a status."""
    failed: Callable[..., Exception] = _PARTS["_channel._InactiveRpcError"]
    status = _PARTS["_common"].CYGRPC_STATUS_CODE_TO_STATUS_CODE.get(code, grpc.StatusCode.UNKNOWN)
    return failed(_PARTS["_channel._RPCState"]((), (), trailing_metadata, status, details))


def free_cancelled_streams() -> None:
    """Let a thread free the streams that were cancelled."""
    if _CANCELLED:
        threading.Thread(target=_free_cancelled_streams, name="nnhal-stream-end", daemon=True).start()


def _free_cancelled_streams() -> None:
    with contextlib.suppress(IndexError):
        while True:
            _CANCELLED.popleft().read_last_events()
