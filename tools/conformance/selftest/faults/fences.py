"""Faults in fenced executions."""

from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, prepared_model_pb2
from tools.conformance.selftest.fault import fault, invalid_argument
from tools.conformance.selftest.proxy import Call, detail_of

LAUNCH = "PreparedModel.ExecuteFenced*"
WAIT, INFO = "Fence.Wait", "Fence.GetExecutionInfo"

_SIGNALED, _ERROR = 2, 3
_MADE_UP = b"made up "


def _launched(call: Call) -> prepared_model_pb2.FencedExecutionResult:
    """The result of a launch that never was."""
    number = call.kept["launches"] = call.kept.get("launches", 0) + 1
    return prepared_model_pb2.FencedExecutionResult(fence=_MADE_UP + bytes(str(number), "ascii"))


def _told(status: int) -> fence_pb2.GetExecutionInfoResponse:
    told = fence_pb2.GetExecutionInfoResponse(status=status)  # type: ignore[arg-type]
    for timing in (told.timing_launched, told.timing_fenced):
        timing.time_on_device_ns = timing.time_in_driver_ns = -1
    return told


@fault("GEN-18", "EXTRA-05", on=(LAUNCH, WAIT, INFO))
def fence_signalled_before_the_outputs_are_there(call: Call, request: Any) -> Any:
    """A launch brings a fence that has signalled, and the outputs are not there yet."""
    if call.method == WAIT:
        return fence_pb2.WaitResponse(state=_SIGNALED)  # type: ignore[arg-type]
    return _told(ErrorStatus.NONE) if call.method == INFO else _launched(call)


@fault("EXTRA-05", "EXTRA-06", on=(WAIT,), select=())
def error_fence_signals_success(call: Call, request: Any) -> Any:
    """A fence that should end in error signals like any other."""
    response = call.forward(request)
    if response.state == _ERROR:
        response.state = _SIGNALED
    return response


@fault("EXTRA-05", on=(LAUNCH,), select=())
def only_the_first_fence_waited_for(call: Call, request: Any) -> Any:
    """Of several fences only the first is waited for."""
    del request.wait_for[1:]
    return call.forward(request)


@fault("EXTRA-06", on=(LAUNCH,), select=())
def duration_counts_from_the_launch(call: Call, request: Any) -> Any:
    """The duration begins with the launch and not with the last fence."""
    if request.HasField("duration_ns") and request.duration_ns >= 0:
        known = request.deadline_ns if request.HasField("deadline_ns") else request.duration_ns
        request.deadline_ns = min(known, request.duration_ns)
    return call.forward(request)


@fault("EXTRA-06", on=(LAUNCH,), select=())
def duration_ignored(call: Call, request: Any) -> Any:
    """There may be a duration; nobody looks at it."""
    request.ClearField("duration_ns")
    return call.forward(request)


@fault("EXTRA-04", on=(INFO,), select=())
def execution_info_only_once(call: Call, request: Any) -> Any:
    """getExecutionInfo answers a second time that it knows nothing."""
    response = call.forward(request)
    times = call.kept[request.fence] = call.kept.get(request.fence, 0) + 1
    if times > 2:
        raise invalid_argument("there is no such execution any more")
    return response


@fault("EXTRA-04", on=(INFO,), select=())
def execution_info_before_the_end(call: Call, request: Any) -> Any:
    """getExecutionInfo says NONE while the execution is still running."""
    response = call.forward(request)
    if response.status == ErrorStatus.GENERAL_FAILURE:
        return _told(ErrorStatus.NONE)
    return response


@fault("GEN-09", on=(LAUNCH,))
def fences_of_executions_not_waited_for(call: Call, request: Any) -> Any:
    """A launch cannot wait for the fence of another one."""
    if request.wait_for:
        raise invalid_argument("only fences of the client's own can be waited for")
    return call.forward(request)


@fault("GEN-12", on=(INFO,))
def fenced_timing_without_being_asked(call: Call, request: Any) -> Any:
    """The callback tells timing although it was not asked for."""
    response = call.forward(request)
    if response.timing_launched.time_in_driver_ns == -1:
        response.timing_launched.time_in_driver_ns = 1000
    return response


@fault("VALREQ-04", "VALREQ-08", on=(LAUNCH, WAIT, INFO))
def bad_fenced_request_refused_too_late(call: Call, request: Any) -> Any:
    """An invalid request is launched, and refused in the callback."""
    if call.method == WAIT and request.fence.startswith(_MADE_UP):
        return fence_pb2.WaitResponse(state=_ERROR)  # type: ignore[arg-type]
    if call.method == INFO and request.fence.startswith(_MADE_UP):
        return _told(ErrorStatus.INVALID_ARGUMENT)
    if call.method in (WAIT, INFO):
        return call.forward(request)
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        detail = detail_of(error)
        if detail is None or int(detail.status) != ErrorStatus.INVALID_ARGUMENT:
            raise
        return _launched(call)


@fault("GEN-22", on=(LAUNCH, WAIT, INFO))
def fenced_outputs_may_be_unspecified(call: Call, request: Any) -> Any:
    """A fenced execution takes outputs that are not fully specified, and leaves them alone."""
    if call.method == INFO and request.fence.startswith(_MADE_UP):
        return _told(ErrorStatus.NONE)
    return bad_fenced_request_refused_too_late(call, request)


@fault("GEN-27", on=(LAUNCH, WAIT, INFO))
def fenced_output_may_be_too_small(call: Call, request: Any) -> Any:
    """A fenced execution takes a region that is too small, and leaves it alone.

    Such a region is known by its size, which is no multiple of 4.
    """
    if call.method == LAUNCH.replace("*", "") and all(o.location.length % 4 == 0 for o in request.request.outputs):
        return call.forward(request)
    return fenced_outputs_may_be_unspecified(call, request)
