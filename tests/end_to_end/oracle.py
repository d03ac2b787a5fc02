"""What any call may end with, whatever was sent: success, or an error with a status and a reason; and soon."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import device_pb2, error_pb2

WATCHDOG_S = 60.0
"""A call that has not ended by then never will."""

DEFECTS = ("the service failed", "the driver failed")
"""How reasons begin that tell of a defect of the service."""

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
}
"""The tables of error.proto."""

_OF_GRPC_ITSELF: dict[grpc.StatusCode, tuple[str, ...]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("message larger than max",),
    # the middle one is a method of the health service that grpc's own package leaves out
    grpc.StatusCode.UNIMPLEMENTED: ("Method not found", "Method not implemented", "exactly one request message"),
    grpc.StatusCode.NOT_FOUND: ("",),  # health: a service of which it knows nothing
}
"""Codes without details, and what gRPC says with them."""


@dataclass
class Verdict:
    """How a call ended. `code`: OK or the error's; `detail`: what the error carries, if it is ours."""

    responses: list[Message] = field(default_factory=list)
    code: grpc.StatusCode = grpc.StatusCode.OK
    detail: error_pb2.ErrorDetail | None = None
    details: str = ""

    @property
    def status(self) -> int:
        """The HAL's status: of the error, of the last notify, or NONE."""
        if self.detail is not None:
            return int(self.detail.status)
        notified = [int(one.notify.status) for one in self.responses if isinstance(one, device_pb2.PrepareModelEvent)]
        return notified[-1] if notified else int(ErrorStatus.NONE)

    @property
    def rule(self) -> str:
        """The rule that the error names."""
        return self.detail.rule if self.detail is not None else ""

    @property
    def prepared_model(self) -> bytes:
        """The handle that a preparation gave."""
        events = [one for one in self.responses if isinstance(one, device_pb2.PrepareModelEvent)]
        assert events and events[-1].notify.prepared_model, self
        return events[-1].notify.prepared_model

    @property
    def reason(self) -> str:
        """Why it failed: what the error or the last notify says."""
        if self.detail is not None:
            return self.detail.reason
        said = [one.notify.reason for one in self.responses if isinstance(one, device_pb2.PrepareModelEvent)]
        return said[-1] if said else ""


def judged(call: Callable[[], Iterator[Message]]) -> Verdict:
    """Makes a call and holds how it ends."""
    verdict = Verdict()
    try:
        for response in call():
            verdict.responses.append(response)
            _judge_response(response)
    except grpc.RpcError as error:
        _read(error, verdict)
        _judge_error(verdict)
    return verdict


def _judge_response(response: Message) -> None:
    if isinstance(response, device_pb2.PrepareModelEvent) and response.WhichOneof("event") == "notify":
        notify = response.notify
        assert (notify.status == ErrorStatus.NONE) == bool(notify.prepared_model), notify
        if notify.status != ErrorStatus.NONE:
            _judge_reason(notify.status, notify.reason)


def _read(error: grpc.RpcError, verdict: Verdict) -> None:
    assert isinstance(error, grpc.Call)
    verdict.code, verdict.details = error.code(), error.details() or ""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            (packed,) = error_pb2.RpcStatus.FromString(value).details
            verdict.detail = error_pb2.ErrorDetail()
            assert packed.Unpack(verdict.detail)


def _judge_error(verdict: Verdict) -> None:
    detail = verdict.detail
    if detail is None:
        expected = _OF_GRPC_ITSELF.get(verdict.code, ())
        assert any(text in verdict.details for text in expected), f"{verdict.code} without details: {verdict.details}"
        return
    _judge_reason(detail.status, detail.reason)
    expected_code = _KIND_CODES.get(ErrorKind(detail.kind)) or _CODES[ErrorStatus(detail.status)]
    assert verdict.code == expected_code, (verdict.code, detail)
    assert bool(detail.limit) == (detail.kind == ErrorKind.LIMIT), detail


def _judge_reason(status: int, reason: str) -> None:
    assert ErrorStatus(status) not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE), (status, reason)
    assert reason.strip(), f"status {status} without a reason"
    assert not reason.startswith(DEFECTS), reason
