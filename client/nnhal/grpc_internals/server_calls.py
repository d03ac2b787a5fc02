"""Calls of a server: requests that gRPC's thread receives before the thread of their call runs, and early ends.

gRPC starts the function of a call on a thread, which then waits for the request. Two wake-ups cost as much as a small
model. With private parts of gRPC, the thread is woken once, when it has its request. It is reserved
meanwhile, so that as many calls wait for their clients as before. Decision 7 in docs/decisions.md has the measurements.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import grpc

from nnhal.grpc_internals.gate import private_parts

_RESPOND = "rpc_event state behavior argument_thunk request_deserializer response_serializer"
_PARTS = private_parts(
    functions={
        "_cython.cygrpc.Call.cancel": "self error_code details",
        "_cython.cygrpc.Call.start_server_batch": "self operations tag",
        "_server._Context": "rpc_event state request_deserializer",
        "_server._is_rpc_state_active": "state",
        "_server._raise_rpc_error": "state",
        "_server._receive_message": "state call request_deserializer",
        "_server._stream_response_in_pool": _RESPOND,
        "_server._unary_response_in_pool": _RESPOND,
    },
    members={
        "_cython.cygrpc": "ReceiveMessageOperation",
        "_server": "_CANCELLED _RECEIVE_MESSAGE_TOKEN",
        "_server._Context": "_rpc_event",
        "_server._RPCState": "client condition due request",
    },
)
cygrpc: Any = _PARTS.get("_cython.cygrpc")
_server: Any = _PARTS.get("_server")
_RESPONDERS = (_server._unary_response_in_pool, _server._stream_response_in_pool) if _server is not None else ()
"""Functions that gRPC runs on a thread of the pool for each call."""

Watch: TypeAlias = "Callable[[grpc.ServicerContext], Callable[[], None]]"
"""Begins to watch a call that waits for its client. Returns what ends that."""

_NO_FLAGS = 0


class EarlyRequest:
    """Iterator over the only request of a call, for its thread. `receive_early` marks the methods that have one.

    Args:
        rpc_event: the event with which gRPC has announced the call.
        state: gRPC's state of the call.
        decode: decodes the request.
        on_received: called when there is a request, or when none will come.
    """

    def __init__(self, rpc_event: Any, state: Any, decode: Any, on_received: Callable[[], None]) -> None:
        self._state = state
        self._receive = _server._receive_message(state, rpc_event.call, decode)
        self._on_received = on_received
        state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        rpc_event.call.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), self._end_receipt)

    def _end_receipt(self, event: Any) -> Any:
        result = self._receive(event)
        self._on_received()
        return result

    def __iter__(self) -> "EarlyRequest":
        return self

    def __next__(self) -> Any:
        """Return the request.

        Raises:
            StopIteration: there is none, or it has been returned.
            grpc.RpcError: the call was cancelled.
        """
        with self._state.condition:
            if self._state.client is _server._CANCELLED:
                _server._raise_rpc_error(self._state)
            request, self._state.request = self._state.request, None
        if request is None:
            raise StopIteration
        return request


def receive_early(method: Callable[..., Any], watch: Watch) -> None:
    """Have the calls of a method receive their only request before their threads run.

    Args:
        method: takes an iterator over the requests, of which it reads one.
        watch: watches each call until its request is there.
    """
    vars(method)["nnhal_watch"] = watch


def when_received(function: Callable[..., Any], args: Sequence[Any], run: Callable[[Callable[[], Any]], None]) -> None:
    """Run a function of a thread pool, once the request is there if the function works on a call of `receive_early`.

    `run` runs a function on a thread. It may be called by another thread.
    """
    watch = _watch_of(args)
    if watch is None:
        run(lambda: function(*args))
        return
    respond, rpc_event, state, method, _, decode, encode = args
    with state.condition:
        if not _server._is_rpc_state_active(state):
            run(lambda: function(*args))
            return
        end_watch = watch(_server._Context(rpc_event, state, decode))

        def on_received() -> None:
            end_watch()
            run(lambda: function(respond, rpc_event, state, method, lambda: request, decode, encode))

        request = EarlyRequest(rpc_event, state, decode, on_received)


def _watch_of(args: Sequence[Any]) -> "Watch | None":
    """Return what watches a call, if gRPC's arguments are those of one that may receive its request early."""
    if not args or args[0] not in _RESPONDERS:
        return None
    watch: Watch | None = getattr(args[3], "nnhal_watch", None)
    return watch


def end_call(context: grpc.ServicerContext, code: int, text: str) -> None:
    """End a call with a status, from any thread. With the public interface of gRPC alone, the status is CANCELLED."""
    if cygrpc is None:
        context.cancel()
        return
    call: Any = context
    call._rpc_event.call.cancel(code, text)
