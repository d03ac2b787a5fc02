"""Faults in priorities, deadlines and loop timeouts."""

from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2
from tools.conformance.selftest.fault import EXECUTE, PREPARE, changed_detail, fault, invalid_argument, with_errors
from tools.conformance.selftest.proxy import Call, Refusal

_TIMES = ("deadline_ns", "loop_timeout_duration_ns", "duration_ns")
_HIGH = 2
_UNAVAILABLE: Any = ErrorStatus.DEVICE_UNAVAILABLE
_MISSED: Any = ErrorStatus.MISSED_DEADLINE_PERSISTENT


@fault("QOS-05", on=("Device.PrepareModel",))
def priority_high_refused(call: Call, request: Any) -> Iterator[Any]:
    """A preparation with priority HIGH ends with an error."""
    for event in call.forward(request):
        if request.priority == _HIGH and event.notify.prepared_model:
            event.notify.Clear()
            event.notify.status = _UNAVAILABLE
        yield event


@fault("QOS-07", on=(PREPARE,))
def preparation_deadline_of_32_bits(call: Call, request: Any) -> Any:
    """A deadline of a preparation that does not fit 32 bits counts as 0."""
    _cut_deadline(request)
    return call.forward(request)


@fault("QOS-13", on=(EXECUTE,))
def execution_deadline_of_32_bits(call: Call, request: Any) -> Any:
    """A deadline of an execution that does not fit 32 bits counts as 0."""
    _cut_deadline(request)
    return call.forward(request)


@fault("EXTRA-02", on=(PREPARE, EXECUTE))
def negative_times_are_none(call: Call, request: Any) -> Any:
    """Times below -1 count as none."""
    for part in _parts(request):
        for name in _TIMES:
            if _has(part, name) and getattr(part, name) < -1:
                setattr(part, name, -1)
    return call.forward(request)


@fault("STATIC-01", on=(EXECUTE,), select=())
def default_loop_timeout_of_1_s(call: Call, request: Any) -> Any:
    """A loop without a timeout of its own is ended after 1 s."""
    for part in _parts(request):
        if _takes(part, "loop_timeout_duration_ns") and not _has(part, "loop_timeout_duration_ns"):
            part.loop_timeout_duration_ns = 10**9
    return call.forward(request)


@fault("STATIC-01", "EXTRA-03", on=(EXECUTE,), select=())
def loop_timeout_of_15_s_refused(call: Call, request: Any) -> Any:
    """The longest loop timeout of the HAL is refused."""
    for part in _parts(request):
        if _has(part, "loop_timeout_duration_ns") and part.loop_timeout_duration_ns >= 15 * 10**9:
            raise invalid_argument("the loop timeout must be below 15 s")
    return call.forward(request)


@fault("EXTRA-03", on=(EXECUTE,))
def loop_timeout_without_a_limit(call: Call, request: Any) -> Any:
    """A loop timeout above 15 s is taken for 15 s."""
    for part in _parts(request):
        if _has(part, "loop_timeout_duration_ns"):
            part.loop_timeout_duration_ns = min(part.loop_timeout_duration_ns, 15 * 10**9)
    return call.forward(request)


@fault("EXTRA-22", on=(EXECUTE,))
def every_deadline_transient(call: Call, request: Any) -> Any:
    """A deadline that had passed beforehand is MISSED_DEADLINE_TRANSIENT, as if a retry could help."""

    def change(detail: Any) -> None:
        if detail.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT:
            detail.status = ErrorStatus.MISSED_DEADLINE_TRANSIENT

    return with_errors(call, request, changed_detail(change))


@fault("NNHAL-01", on=(PREPARE,))
def expired_preparation_done(call: Call, request: Any) -> Any:
    """A preparation is done although its deadline has passed."""
    _forget_expired(request)
    return call.forward(request)


@fault("QOS-03", "NNHAL-01", on=(PREPARE,))
def expired_preparation_done_and_then_refused(call: Call, request: Any) -> Iterator[Any]:
    """A preparation whose deadline has passed is done; the callback says MISSED_DEADLINE, and brings the model."""
    expired = _forget_expired(request)
    for event in call.forward(request):
        if expired and event.notify.prepared_model:
            event.notify.status = _MISSED
            event.notify.reason = "the deadline has passed"
        yield event


@fault("NNHAL-02", on=(EXECUTE,))
def expired_execution_done(call: Call, request: Any) -> Any:
    """An execution is done although its deadline has passed."""
    _forget_expired(request)
    return call.forward(request)


@fault("NNHAL-02", on=(EXECUTE,))
def expired_execution_done_and_then_refused(call: Call, request: Any) -> Any:
    """An execution whose deadline has passed is done, and its outputs are there; only then the deadline is missed."""
    expired = _forget_expired(request)
    result = call.forward(request)
    if expired:
        detail = error_pb2.ErrorDetail(status=_MISSED, reason="the deadline has passed")
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, detail)
    return result


def _cut_deadline(request: Any) -> None:
    for part in _parts(request):
        if _has(part, "deadline_ns") and part.deadline_ns >= 2**31:
            part.deadline_ns = 0


def _forget_expired(request: Any) -> bool:
    """Takes away a deadline that has passed; gives whether there was one."""
    expired = [part for part in _parts(request) if _has(part, "deadline_ns") and part.deadline_ns == 0]
    for part in expired:
        part.ClearField("deadline_ns")
    return bool(expired)


def _parts(request: Any) -> list[Any]:
    """The request, and its configuration if it has one: times stand in either."""
    return [request, request.config] if "config" in request.DESCRIPTOR.fields_by_name else [request]


def _takes(part: Any, name: str) -> bool:
    return name in part.DESCRIPTOR.fields_by_name


def _has(part: Any, name: str) -> bool:
    return _takes(part, name) and bool(part.HasField(name))
