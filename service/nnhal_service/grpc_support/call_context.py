"""Deadline and cancellation of a gRPC call, and the times of its request."""

from typing import Any

import grpc

from nnhal.types import OMITTED
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns, to_absolute

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
