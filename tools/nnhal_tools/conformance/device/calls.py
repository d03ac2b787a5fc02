"""Calls through the generated stubs, and their errors. Nothing is retried or repaired."""

from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import device_pb2, error_pb2
from nnhal_tools.conformance.check import ConnectionLost, NotServiceSpecific, UnsupportedCase
from nnhal_tools.conformance.device.results import OK, CallOutcome, PreparationOutcome

WATCHDOG_S = 120.0
"""Timeout of a call. The vendor test suite waits without a limit."""


def invoke(method: Any, request: Any) -> tuple[CallOutcome, Any]:
    """Make a call and return its outcome with the response, or None if it failed.

    Raises:
        Unsupported: the call failed with UNIMPLEMENTED.
        NotServiceSpecific: it failed without a service-specific error.
    """
    try:
        return OK, method(request, timeout=WATCHDOG_S)
    except grpc.RpcError as error:
        return outcome_from_error(error), None


def collect_preparation(
    stream: Iterator[device_pb2.PrepareModelEvent], preparation: PreparationOutcome | None = None
) -> PreparationOutcome:
    """Read the stream of a preparation to its end. Callers that need the outcome although the call fails provide it.

    Raises:
        Unsupported, NotServiceSpecific: see `outcome_from_error`.
    """
    preparation = preparation or PreparationOutcome()
    try:
        for event in stream:
            kind = event.WhichOneof("event")
            preparation.events.append(kind or "nothing")
            if kind == "notify":
                preparation.callbacks.append(event.notify)
    except grpc.RpcError as error:
        preparation.launch = outcome_from_error(error)
    return preparation


def outcome_from_error(error: grpc.RpcError) -> CallOutcome:
    """Return the service-specific error of a failed call.

    Raises:
        Unsupported: the call failed with UNIMPLEMENTED.
        NotServiceSpecific: the call carries no service-specific error. ConnectionLost: and its code is UNAVAILABLE.
    """
    outcome = parse_error(error)
    assert isinstance(error, grpc.Call)
    if error.code() == grpc.StatusCode.UNIMPLEMENTED or (outcome and outcome.kind == ErrorKind.UNIMPLEMENTED):
        raise UnsupportedCase((outcome.reason if outcome else error.details()) or "UNIMPLEMENTED")
    if outcome is None or outcome.status == ErrorStatus.NONE:
        kind = ConnectionLost if error.code() == grpc.StatusCode.UNAVAILABLE else NotServiceSpecific
        raise kind(f"{error.code().name}: {error.details()}", error.code().name)
    return outcome


def required_call_error(method: str, outcome: CallOutcome) -> NotServiceSpecific:
    """Return the error of a call that a check cannot do without."""
    kind = ConnectionLost if outcome.status == ErrorStatus.DEVICE_UNAVAILABLE else NotServiceSpecific
    return kind(f"{method}: {outcome}")


def parse_error(error: grpc.RpcError) -> CallOutcome | None:
    """Return the error detail of a failed call, also of an UNIMPLEMENTED one, or None if it carries none."""
    assert isinstance(error, grpc.Call)
    detail = detail_of(error)
    if detail is None:
        return None
    return outcome_from_detail(detail, error.code().name)


def outcome_from_detail(detail: error_pb2.ErrorDetail, code: str = "OK") -> CallOutcome:
    """Return an error detail as an outcome. `code`: the name of the gRPC status code."""
    return CallOutcome(detail.status, detail.reason, detail.rule, detail.kind, detail.limit, code)


def detail_of(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    """Return the error detail in the trailing metadata of a failed call, or None."""
    assert isinstance(error, grpc.Call)
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            for packed in error_pb2.RpcStatus.FromString(value).details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return detail
    return None
