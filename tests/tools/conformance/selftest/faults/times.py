"""Faults in priorities, deadlines and loop timeouts."""

from collections.abc import Iterator
from threading import Condition
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2
from tests.tools.conformance.selftest.fault import (
    EXECUTE,
    PREPARE,
    edit_detail,
    fault,
    invalid_argument,
    replace_errors,
)
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall

_TIMES = ("deadline_ns", "loop_timeout_duration_ns", "duration_ns")
_HIGH = 2
_DAY_NS = 24 * 3600 * 10**9
_UNAVAILABLE: Any = ErrorStatus.DEVICE_UNAVAILABLE
_MISSED: Any = ErrorStatus.MISSED_DEADLINE_PERSISTENT


@fault("QOS-05", on=("Device.PrepareModel",))
def priority_high_refused(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail a preparation with priority HIGH."""
    for event in call.forward(request):
        if request.priority == _HIGH and event.notify.prepared_model:
            event.notify.Clear()
            event.notify.status = _UNAVAILABLE
        yield event


@fault("QOS-07", on=(PREPARE,))
def preparation_deadline_of_32_bits(call: ProxyCall, request: Any) -> Any:
    """Treat a preparation deadline of 2^31 ns or more as 0."""
    _truncate_deadline(request)
    return call.forward(request)


@fault("QOS-13", on=(EXECUTE,))
def execution_deadline_of_32_bits(call: ProxyCall, request: Any) -> Any:
    """Treat an execution deadline of 2^31 ns or more as 0."""
    _truncate_deadline(request)
    return call.forward(request)


@fault("NNHAL-42", on=(PREPARE, EXECUTE))
def deadlines_on_the_boot_clock(call: ProxyCall, request: Any) -> Any:
    """Treat a deadline as a time of CLOCK_BOOTTIME, on a machine that is up for a day."""
    for part in _messages_with_times(request):
        if _is_set(part, "deadline_ns") and 0 <= part.deadline_ns < 2**63 - 1:
            part.deadline_ns = max(0, part.deadline_ns - _DAY_NS)
    return call.forward(request)


@fault("EXTRA-27", on=("Device.PrepareModel", EXECUTE), select=())
def priorities_of_all_clients_compared(call: ProxyCall, request: Any) -> Any:
    """Let executions at LOW of any client wait until no client executes at HIGH."""
    if call.method.startswith("Device."):
        return _with_priorities(call, request)
    busy: Condition = call.state.setdefault("busy", Condition())
    is_high = call.state.get(request.prepared_model) == _HIGH
    with busy:
        if is_high:
            call.state["running"] = call.state.get("running", 0) + 1
        else:
            busy.wait_for(lambda: not call.state.get("running", 0))
    try:
        return call.forward(request)
    finally:
        with busy:
            call.state["running"] = call.state.get("running", 0) - is_high
            busy.notify_all()


def _with_priorities(call: ProxyCall, request: Any) -> Iterator[Any]:
    for event in call.forward(request):
        if event.notify.prepared_model:
            call.state[event.notify.prepared_model] = request.priority
        yield event


@fault("EXTRA-02", on=(PREPARE, EXECUTE))
def negative_times_are_none(call: ProxyCall, request: Any) -> Any:
    """Treat times below -1 as absent."""
    for part in _messages_with_times(request):
        for name in _TIMES:
            if _is_set(part, name) and getattr(part, name) < -1:
                setattr(part, name, -1)
    return call.forward(request)


@fault("STATIC-01", on=(EXECUTE,), select=())
def default_loop_timeout_of_1_s(call: ProxyCall, request: Any) -> Any:
    """Use a default loop timeout of 1 s."""
    for part in _messages_with_times(request):
        if _has_field(part, "loop_timeout_duration_ns") and not _is_set(part, "loop_timeout_duration_ns"):
            part.loop_timeout_duration_ns = 10**9
    return call.forward(request)


@fault("STATIC-01", "EXTRA-03", on=(EXECUTE,), select=())
def loop_timeout_of_15_s_refused(call: ProxyCall, request: Any) -> Any:
    """Reject the longest valid loop timeout."""
    for part in _messages_with_times(request):
        if _is_set(part, "loop_timeout_duration_ns") and part.loop_timeout_duration_ns >= 15 * 10**9:
            raise invalid_argument("the loop timeout must be below 15 s")
    return call.forward(request)


@fault("EXTRA-03", on=(EXECUTE,))
def loop_timeout_without_a_limit(call: ProxyCall, request: Any) -> Any:
    """Reduce a loop timeout above 15 s to 15 s instead of rejecting it."""
    for part in _messages_with_times(request):
        if _is_set(part, "loop_timeout_duration_ns"):
            part.loop_timeout_duration_ns = min(part.loop_timeout_duration_ns, 15 * 10**9)
    return call.forward(request)


@fault("EXTRA-22", on=(EXECUTE,))
def every_deadline_transient(call: ProxyCall, request: Any) -> Any:
    """Report MISSED_DEADLINE_TRANSIENT for a deadline that passed before the call."""

    def change(detail: Any) -> None:
        if detail.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT:
            detail.status = ErrorStatus.MISSED_DEADLINE_TRANSIENT

    return replace_errors(call, request, edit_detail(change))


@fault("NNHAL-01", on=(PREPARE,))
def expired_preparation_done(call: ProxyCall, request: Any) -> Any:
    """Prepare a model although the deadline has passed."""
    _clear_expired_deadlines(request)
    return call.forward(request)


@fault("QOS-03", "NNHAL-01", on=(PREPARE,))
def expired_preparation_done_and_then_refused(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Prepare a model after its deadline, and return it with MISSED_DEADLINE."""
    expired = _clear_expired_deadlines(request)
    for event in call.forward(request):
        if expired and event.notify.prepared_model:
            event.notify.status = _MISSED
            event.notify.reason = "the deadline has passed"
        yield event


@fault("NNHAL-02", on=(EXECUTE,))
def expired_execution_done(call: ProxyCall, request: Any) -> Any:
    """Execute a request although the deadline has passed."""
    _clear_expired_deadlines(request)
    return call.forward(request)


@fault("NNHAL-02", on=(EXECUTE,))
def expired_execution_done_and_then_refused(call: ProxyCall, request: Any) -> Any:
    """Execute a request after its deadline, write the outputs, and report a missed deadline."""
    expired = _clear_expired_deadlines(request)
    result = call.forward(request)
    if expired:
        detail = error_pb2.ErrorDetail(status=_MISSED, reason="the deadline has passed")
        raise InjectedError(grpc.StatusCode.DEADLINE_EXCEEDED, detail)
    return result


def _truncate_deadline(request: Any) -> None:
    for part in _messages_with_times(request):
        if _is_set(part, "deadline_ns") and part.deadline_ns >= 2**31:
            part.deadline_ns = 0


def _clear_expired_deadlines(request: Any) -> bool:
    """Remove deadlines that have passed, and return whether there were any."""
    expired = [part for part in _messages_with_times(request) if _is_set(part, "deadline_ns") and part.deadline_ns == 0]
    for part in expired:
        part.ClearField("deadline_ns")
    return bool(expired)


def _messages_with_times(request: Any) -> list[Any]:
    """Return the request, and its configuration if it has one. Either may hold the times."""
    return [request, request.config] if "config" in request.DESCRIPTOR.fields_by_name else [request]


def _has_field(part: Any, name: str) -> bool:
    return name in part.DESCRIPTOR.fields_by_name


def _is_set(part: Any, name: str) -> bool:
    return _has_field(part, name) and bool(part.HasField(name))
