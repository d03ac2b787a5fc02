"""Faults that show when a process of the service ends, and when the service is back.

The proxy outlives the service behind it, and lies about its end.
"""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from nnhal.shm.protocol import Packet, PacketKind
from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, error_pb2, execution_pb2, memory_pb2, session_pb2, types_pb2
from nnhal_tools.conformance.device.calls import parse_error
from nnhal_tools.conformance.resilience.models import SIZE
from tests.tools.conformance.selftest.fault import (
    EXECUTE,
    PREPARE,
    data_fault,
    fake_result,
    fault,
    ignore_error,
    preparation_events,
)
from tests.tools.conformance.selftest.faults.cache import BOTH, FROM_CACHE, cache_of
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall
from tests.tools.conformance.selftest.relay import RelayedRequest

KILL, STOP = ("kill_command",), ("stop_command",)

SHORT_S = 5.0
"""Time limit for the service to respond again, in trials that must exceed it."""

HOLD_S = 60.0
"""Longest time for which a fault holds back an answer."""

DOWN = "down"
"""Key in the state of the hooks: whether the end of the service has been seen."""


def is_end(error: grpc.RpcError) -> bool:
    """Return whether a call has ended because the service did."""
    assert isinstance(error, grpc.Call)
    return error.code() == grpc.StatusCode.UNAVAILABLE and parse_error(error) is None


def at_the_end(call: ProxyCall, request: Any, instead: Callable[[], Any]) -> Any:
    """Forward a unary call. If the service ends, return the result of `instead`."""
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        if not is_end(error):
            raise
        return instead()


def hold(call: ProxyCall) -> None:
    """Hold back an answer until the client gives up."""
    ended = threading.Event()
    if call.on_end(ended.set):
        ended.wait(HOLD_S)


def zeros() -> types_pb2.ExecutionResult:
    """Return the result of an execution with one output of zeros."""
    result = fake_result()
    result.returned.add(inline=bytes(4 * SIZE))
    return result


def general_failure() -> InjectedError:
    """Return an error that is not that of a service that has ended."""
    failure: Any = ErrorStatus.GENERAL_FAILURE
    return InjectedError(grpc.StatusCode.INTERNAL, error_pb2.ErrorDetail(status=failure, reason="no backend responds"))


# ---- Calls in progress ------------------------------------------------------------------------------------


@fault("RESIL-01", "RESIL-02", "RESIL-03", on=(PREPARE,), select=(), needs=KILL)
def two_notifies_at_the_end(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Notify twice, once for the supervisor and once for the worker, if a process ends while it prepares."""
    try:
        yield from call.forward(request)
    except grpc.RpcError as error:
        if not is_end(error):
            raise
        unavailable: Any = ErrorStatus.DEVICE_UNAVAILABLE
        for _ in range(2):
            notify = device_pb2.Notify(status=unavailable, reason="the process has ended")
            yield device_pb2.PrepareModelEvent(notify=notify)


@fault("RESIL-01", on=("Device.PrepareModel",), select=(), needs=KILL)
def no_notify_and_no_error(call: ProxyCall, request: Any) -> Iterator[Any]:
    """End the stream of a preparation as if it was complete, when the process ends."""
    return _without_error(call, request)


def _without_error(call: ProxyCall, request: Any) -> Iterator[Any]:
    try:
        yield from call.forward(request)
    except grpc.RpcError as error:
        if not is_end(error):
            raise


@fault("RESIL-04", on=(EXECUTE,), select=(), needs=KILL, recovery_s=SHORT_S)
def silence_at_the_end(call: ProxyCall, request: Any) -> Any:
    """Never answer an execution whose process has ended."""

    def wait() -> Any:
        hold(call)
        raise general_failure()

    return at_the_end(call, request, wait)


@fault("RESIL-04", on=(EXECUTE,), select=(), needs=KILL)
def zeros_at_the_end(call: ProxyCall, request: Any) -> Any:
    """Return outputs of zeros for an execution whose process has ended."""
    return at_the_end(call, request, zeros)


@fault("RESIL-05", on=("Execution.ExecuteSynchronously",), select=(), needs=KILL)
def reusable_zeros_at_the_end(call: ProxyCall, request: execution_pb2.RunExecutionRequest) -> Any:
    """Return outputs of zeros for a run of a reusable execution whose process has ended."""
    return at_the_end(call, request, zeros)


@fault("RESIL-06", on=("Fence.*",), select=(), needs=KILL)
def fence_fails_at_the_end(call: ProxyCall, request: Any) -> Any:
    """Report GENERAL_FAILURE for a fence whose process has ended."""

    def fail() -> Any:
        raise general_failure()

    return at_the_end(call, request, fail)


@fault("RESIL-07", on=("Burst.Execute*",), select=(), needs=KILL)
def burst_zeros_at_the_end(call: ProxyCall, request: Any) -> Any:
    """Return outputs of zeros for an execution of a burst whose process has ended."""
    return at_the_end(call, request, zeros)


@fault("RESIL-08", on=("Burst.Stream",), select=(), needs=KILL)
def stream_of_a_burst_ends_without_an_error(call: ProxyCall, requests: Any) -> Iterator[Any]:
    """End the stream of a burst as if the client had, when the process ends."""
    return _without_error(call, requests)


@data_fault("RESIL-09", select=(), needs=KILL)
def last_result_repeated_at_the_end(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Repeat the last answer on the data socket when the process ends."""
    answer = relayed.forward(request) or relayed.state.get(DOWN)
    relayed.state[DOWN] = answer
    return answer


@data_fault("RESIL-10", select=(), needs=KILL)
def shared_memory_cleared_at_the_end(relayed: RelayedRequest, request: Packet) -> Packet | None:
    """Clear the shared memory of clients when the process ends."""
    if request.kind == PacketKind.SHARE:
        (descriptor,) = relayed.descriptors
        relayed.state[request.number] = os.fdopen(os.dup(descriptor), "r+b", buffering=0)
    answer = relayed.forward(request)
    if answer is None:
        for memory in relayed.state.values():
            memory.write(bytes(os.fstat(memory.fileno()).st_size))
    return answer


@fault("RESIL-11", on=("MemoryService.Create",), select=(), needs=KILL)
def begun_uploads_are_complete(call: ProxyCall, request: memory_pb2.CreateMemoryRequest) -> Any:
    """Take bytes for those of their digest although their upload was interrupted."""
    response = call.forward(request)
    if request.sha256:
        response.complete = request.sha256 in call.state
        call.state[request.sha256] = True
    return response


@fault("RESIL-12", on=("MemoryService.Read",), select=(), needs=KILL)
def part_of_a_memory_taken_for_all_of_it(call: ProxyCall, request: Any) -> Iterator[Any]:
    """End a read as if it was complete, when the process ends."""
    return _without_error(call, request)


@fault("RESIL-13", on=(EXECUTE,), select=(), needs=KILL)
def token_of_a_lost_buffer_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept the token of a buffer that is gone with its process."""
    if not any(pool.WhichOneof("kind") == "token" for pool in request.request.pools):
        return call.forward(request)
    return ignore_error(call, request, zeros(), ErrorStatus.INVALID_ARGUMENT)


# ---- The service that is back -----------------------------------------------------------------------------


@fault("RESIL-14", on=("Health.Check",), select=("RESIL-04",), needs=KILL, recovery_s=SHORT_S)
def health_for_ever_bad(call: ProxyCall, request: Any) -> Any:
    """Report NOT_SERVING although the service responds."""
    response = call.forward(request)
    response.status = response.NOT_SERVING
    return response


@fault("RESIL-14", on=("Session.Open",), select=("RESIL-04",), needs=KILL, recovery_s=SHORT_S)
def no_sessions_after_an_end(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Open no session after the first end of a process."""
    if DOWN in call.state:
        raise InjectedError(grpc.StatusCode.UNAVAILABLE)
    try:
        yield from call.forward(request)
    except grpc.RpcError:
        call.state[DOWN] = True
        raise


@fault("RESIL-15", on=("Session.Open",), select=("RESIL-04",), needs=KILL)
def lost_session_resumed_without_its_objects(call: ProxyCall, request: session_pb2.OpenRequest) -> Any:
    """Resume a session whose process has ended as a new one, whose objects are gone."""
    request.session = b""
    return call.forward(request)


@fault("RESIL-15", on=("MemoryService.Create",), select=("RESIL-04",), needs=KILL)
def lost_session_still_creates_memory(call: ProxyCall, request: Any) -> Any:
    """Create memory in a session whose process has ended."""
    return ignore_error(call, request, memory_pb2.CreateMemoryResponse(memory=bytes(16)), _UNAVAILABLE)


_UNAVAILABLE = ErrorStatus.DEVICE_UNAVAILABLE


@fault("RESIL-16", on=(FROM_CACHE, EXECUTE), select=("RESIL-02",), needs=KILL)
def model_from_the_cache_wrong_after_an_end(call: ProxyCall, request: Any) -> Any:
    """Return zeros from models that were retrieved after the end of a process."""
    if call.method == FROM_CACHE:
        return _remember_retrieved(call, request)
    response = call.forward(request)
    if call.state.get(request.prepared_model):
        response.CopyFrom(zeros())
    return response


def _remember_retrieved(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Yield the events of a retrieval. Store in the state whether the model was retrieved after an end."""
    try:
        for event in call.forward(request):
            if event.notify.prepared_model:
                call.state[event.notify.prepared_model] = DOWN in call.state
            yield event
    except grpc.RpcError as error:
        if is_end(error):
            call.state[DOWN] = True
        raise


@fault("RESIL-17", on=BOTH, select=("RESIL-03",), needs=KILL)
def half_an_entry_is_a_hit(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a HIT for an entry whose saving was interrupted, with a model that does not work."""
    token = cache_of(request).token
    if call.method == FROM_CACHE and token in call.state:
        hit = device_pb2.CacheOutcome(state=device_pb2.CACHE_STATE_HIT)
        notify = device_pb2.Notify(prepared_model=b"made up", cache=hit)
        yield from preparation_events(device_pb2.Launched(), notify)
        return
    try:
        yield from call.forward(request)
    except grpc.RpcError as error:
        if is_end(error):
            call.state[token] = True
        raise


@fault("RESIL-18", on=("Cache.List",), select=("RESIL-02", "RESIL-03"), needs=KILL)
def entries_damaged_by_an_end(call: ProxyCall, request: Any) -> Any:
    """Damage entries of the store that are in use when a process ends."""
    response = call.forward(request)
    call.state[DOWN] = response.counters.set_aside = call.state.get(DOWN, 0) + 1
    return response


@fault("RESIL-19", on=("Session.Open",), select=("RESIL-04",), needs=KILL, recovery_s=SHORT_S)
def session_outlives_its_process(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Leave the stream of a session open although its process has ended."""
    try:
        yield from call.forward(request)
    except grpc.RpcError:
        hold(call)
        raise


@fault("RESIL-20", on=("Session.Open",), select=(), needs=STOP)
def session_not_told_of_the_stop(call: ProxyCall, request: Any) -> Iterator[Any]:
    """End the stream of a session without a reason when the service stops."""
    return (event for event in call.forward(request) if not event.HasField("closing"))
