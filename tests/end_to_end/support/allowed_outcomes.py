"""Checks that hold for every call, whatever was sent: it ends in time, with success or with a status and a reason."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import device_pb2, error_pb2

WATCHDOG_S = 60.0
"""Time in seconds after which a call counts as hanging."""

DEFECTS = ("internal error", "the driver failed")
"""First words of reasons that report a defect of the service."""

_CODES = {
    ErrorStatus.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorStatus.DEVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.GENERAL_FAILURE: grpc.StatusCode.INTERNAL,
}
_KIND_CODES = {
    ErrorKind.SESSION_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.UNKNOWN_HANDLE: grpc.StatusCode.NOT_FOUND,
    ErrorKind.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorKind.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
}
"""The tables of error.proto."""

_GRPC_MESSAGES: dict[grpc.StatusCode, tuple[str, ...]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("message larger than max",),
    # "Method not implemented" comes from a health method that grpc's own package leaves out
    grpc.StatusCode.UNIMPLEMENTED: ("Method not found", "Method not implemented", "exactly one request message"),
    grpc.StatusCode.NOT_FOUND: ("",),  # health: an unknown service
}
"""Status codes that gRPC itself sends, without our details, and their messages."""


@dataclass
class CallResult:
    """Result of a call.

    Attributes:
        responses: all responses.
        code: OK or the code of the error.
        detail: our details of the error, if any.
        details: gRPC's error message.
    """

    responses: list[Message] = field(default_factory=list)
    code: grpc.StatusCode = grpc.StatusCode.OK
    detail: error_pb2.ErrorDetail | None = None
    details: str = ""

    @property
    def status(self) -> int:
        """HAL status of the error, of the last notify, or NONE."""
        if self.detail is not None:
            return int(self.detail.status)
        events = self._preparation_events()
        return int(events[-1].notify.status) if events else int(ErrorStatus.NONE)

    @property
    def rule(self) -> str:
        """Rule id of the error, or ""."""
        return self.detail.rule if self.detail is not None else ""

    @property
    def prepared_model(self) -> bytes:
        """Handle from the last notify of a preparation."""
        events = self._preparation_events()
        assert events and events[-1].notify.prepared_model, self
        return events[-1].notify.prepared_model

    @property
    def reason(self) -> str:
        """Reason of the error or of the last notify, or ""."""
        if self.detail is not None:
            return self.detail.reason
        events = self._preparation_events()
        return events[-1].notify.reason if events else ""

    def _preparation_events(self) -> list[device_pb2.PrepareModelEvent]:
        return [event for event in self.responses if isinstance(event, device_pb2.PrepareModelEvent)]


def check_call(call: Callable[[], Iterator[Message]]) -> CallResult:
    """Make a call, check how it ends, and return the result."""
    result = CallResult()
    try:
        for response in call():
            result.responses.append(response)
            _check_response(response)
    except grpc.RpcError as error:
        _read_error(error, result)
        _check_error(result)
    return result


def _check_response(response: Message) -> None:
    if isinstance(response, device_pb2.PrepareModelEvent) and response.WhichOneof("event") == "notify":
        notify = response.notify
        assert (notify.status == ErrorStatus.NONE) == bool(notify.prepared_model), notify
        if notify.status != ErrorStatus.NONE:
            _check_reason(notify.status, notify.reason)


def _read_error(error: grpc.RpcError, result: CallResult) -> None:
    assert isinstance(error, grpc.Call)
    result.code, result.details = error.code(), error.details() or ""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            (packed,) = error_pb2.RpcStatus.FromString(value).details
            result.detail = error_pb2.ErrorDetail()
            assert packed.Unpack(result.detail)


def _check_error(result: CallResult) -> None:
    detail = result.detail
    if detail is None:
        expected = _GRPC_MESSAGES.get(result.code, ())
        assert any(text in result.details for text in expected), f"{result.code} without details: {result.details}"
        return
    _check_reason(detail.status, detail.reason)
    expected_code = _KIND_CODES.get(ErrorKind(detail.kind)) or _CODES[ErrorStatus(detail.status)]
    assert result.code == expected_code, (result.code, detail)
    assert bool(detail.limit) == (detail.kind == ErrorKind.LIMIT), detail


def _check_reason(status: int, reason: str) -> None:
    assert ErrorStatus(status) not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE), (status, reason)
    assert reason.strip(), f"status {status} without a reason"
    assert not reason.startswith(DEFECTS), reason
