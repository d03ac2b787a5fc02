"""Faults in fenced executions."""

from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, prepared_model_pb2
from nnhal_tools.conformance.device.calls import detail_of
from tests.tools.conformance.selftest.fault import fault, invalid_argument
from tests.tools.conformance.selftest.proxy import ProxyCall

LAUNCH = "PreparedModel.ExecuteFenced*"
WAIT, INFO = "Fence.Wait", "Fence.GetExecutionInfo"

_SIGNALED, _ERROR = 2, 3
_FAKE_FENCE = b"made up "


def _fake_launch(call: ProxyCall) -> prepared_model_pb2.FencedExecutionResult:
    """Return the result of a launch that did not take place."""
    number = call.state["launches"] = call.state.get("launches", 0) + 1
    return prepared_model_pb2.FencedExecutionResult(fence=_FAKE_FENCE + bytes(str(number), "ascii"))


def _execution_info(status: int) -> fence_pb2.GetExecutionInfoResponse:
    info = fence_pb2.GetExecutionInfoResponse(status=status)  # type: ignore[arg-type]
    for timing in (info.timing_launched, info.timing_fenced):
        timing.time_on_device_ns = timing.time_in_driver_ns = -1
    return info


@fault("GEN-18", "EXTRA-05", on=(LAUNCH, WAIT, INFO))
def fence_signalled_before_the_outputs_are_there(call: ProxyCall, request: Any) -> Any:
    """Return a signalled fence before the outputs are written."""
    if call.method == WAIT:
        return fence_pb2.WaitResponse(state=_SIGNALED)  # type: ignore[arg-type]
    return _execution_info(ErrorStatus.NONE) if call.method == INFO else _fake_launch(call)


@fault("EXTRA-05", "EXTRA-06", on=(WAIT,), select=())
def error_fence_signals_success(call: ProxyCall, request: Any) -> Any:
    """Signal a fence that should end in error as successful."""
    response = call.forward(request)
    if response.state == _ERROR:
        response.state = _SIGNALED
    return response


@fault("EXTRA-05", on=(LAUNCH,), select=())
def only_the_first_fence_waited_for(call: ProxyCall, request: Any) -> Any:
    """Wait for only the first of several fences."""
    del request.wait_for[1:]
    return call.forward(request)


@fault("EXTRA-06", on=(LAUNCH,), select=())
def duration_counts_from_the_launch(call: ProxyCall, request: Any) -> Any:
    """Count the duration from the launch instead of from the last fence."""
    if request.HasField("duration_ns") and request.duration_ns >= 0:
        known = request.deadline_ns if request.HasField("deadline_ns") else request.duration_ns
        request.deadline_ns = min(known, request.duration_ns)
    return call.forward(request)


@fault("EXTRA-06", on=(LAUNCH,), select=())
def duration_ignored(call: ProxyCall, request: Any) -> Any:
    """Ignore the duration."""
    request.ClearField("duration_ns")
    return call.forward(request)


@fault("EXTRA-04", on=(INFO,), select=())
def execution_info_only_once(call: ProxyCall, request: Any) -> Any:
    """Forget an execution after getExecutionInfo was called twice."""
    response = call.forward(request)
    times = call.state[request.fence] = call.state.get(request.fence, 0) + 1
    if times > 2:
        raise invalid_argument("unknown execution")
    return response


@fault("EXTRA-04", on=(INFO,), select=())
def execution_info_before_the_end(call: ProxyCall, request: Any) -> Any:
    """Return NONE from getExecutionInfo while the execution is running."""
    response = call.forward(request)
    if response.status == ErrorStatus.GENERAL_FAILURE:
        return _execution_info(ErrorStatus.NONE)
    return response


@fault("GEN-09", on=(LAUNCH,))
def fences_of_executions_not_waited_for(call: ProxyCall, request: Any) -> Any:
    """Reject the fence of another execution in waitFor."""
    if request.wait_for:
        raise invalid_argument("waitFor accepts only fences that the client created")
    return call.forward(request)


@fault("GEN-12", on=(INFO,))
def fenced_timing_without_being_asked(call: ProxyCall, request: Any) -> Any:
    """Return timing that was not requested in the callback."""
    response = call.forward(request)
    if response.timing_launched.time_in_driver_ns == -1:
        response.timing_launched.time_in_driver_ns = 1000
    return response


@fault("VALREQ-04", "VALREQ-08", on=(LAUNCH, WAIT, INFO))
def bad_fenced_request_refused_too_late(call: ProxyCall, request: Any) -> Any:
    """Launch an invalid request, and reject it in the callback."""
    if call.method == WAIT and request.fence.startswith(_FAKE_FENCE):
        return fence_pb2.WaitResponse(state=_ERROR)  # type: ignore[arg-type]
    if call.method == INFO and request.fence.startswith(_FAKE_FENCE):
        return _execution_info(ErrorStatus.INVALID_ARGUMENT)
    if call.method in (WAIT, INFO):
        return call.forward(request)
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        detail = detail_of(error)
        if detail is None or int(detail.status) != ErrorStatus.INVALID_ARGUMENT:
            raise
        return _fake_launch(call)


@fault("GEN-22", on=(LAUNCH, WAIT, INFO))
def fenced_outputs_may_be_unspecified(call: ProxyCall, request: Any) -> Any:
    """Accept outputs that are not fully specified in a fenced execution, and do not write them."""
    if call.method == INFO and request.fence.startswith(_FAKE_FENCE):
        return _execution_info(ErrorStatus.NONE)
    return bad_fenced_request_refused_too_late(call, request)


@fault("GEN-27", on=(LAUNCH, WAIT, INFO))
def fenced_output_may_be_too_small(call: ProxyCall, request: Any) -> Any:
    """Accept a region that is too small in a fenced execution, and do not write it.

    The hook recognizes such a region by its size, which is not a multiple of 4.
    """
    if call.method == LAUNCH.replace("*", "") and all(o.location.length % 4 == 0 for o in request.request.outputs):
        return call.forward(request)
    return fenced_outputs_may_be_unspecified(call, request)
