"""Faults in the results of executions: timing, shapes and statuses."""

import time
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2, types_pb2
from nnhal_tools.conformance.device.calls import detail_of
from tests.tools.conformance.selftest.fault import EXECUTE, OVERLAP_S, fault, replace_errors
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall


@fault("GEN-12", "QOS-11", on=(EXECUTE,))
def timing_without_being_asked(call: ProxyCall, request: Any) -> Any:
    """Return timing that was not requested."""
    result = call.forward(request)
    if result.timing.time_in_driver_ns == -1:
        result.timing.time_in_driver_ns = 1000
    return result


@fault("GEN-13", on=(EXECUTE,))
def device_longer_than_driver(call: ProxyCall, request: Any) -> Any:
    """Report a longer time on the device than in the driver."""
    result = call.forward(request)
    if result.timing.time_on_device_ns != -1:
        result.timing.time_on_device_ns = result.timing.time_in_driver_ns + 1
    return result


@fault("GEN-04", on=(EXECUTE,))
def execution_error_without_details(call: ProxyCall, request: Any) -> Any:
    """Fail an execution without a service-specific error."""
    raise InjectedError(grpc.StatusCode.INTERNAL)


@fault("GEN-14", on=(EXECUTE,))
def general_failure_of_timed_executions(call: ProxyCall, request: Any) -> Any:
    """Fail executions with measureTiming with GENERAL_FAILURE."""
    config = request.config if request.DESCRIPTOR.name == "ExecuteSynchronouslyWithConfigRequest" else request
    if config.measure_timing:
        raise _failure(ErrorStatus.GENERAL_FAILURE, grpc.StatusCode.INTERNAL)
    return call.forward(request)


@fault("GEN-17", on=(EXECUTE,))
def stale_output_shapes(call: ProxyCall, request: Any) -> Any:
    """Return the output shapes of the previous execution."""
    result = call.forward(request)
    fresh = types_pb2.ExecutionResult(output_shapes=result.output_shapes)
    stale = call.state.get("shapes", fresh)
    if len(stale.output_shapes) == len(result.output_shapes):
        del result.output_shapes[:]
        result.output_shapes.extend(stale.output_shapes)
    call.state["shapes"] = fresh
    return result


@fault("GEN-21", on=(EXECUTE,))
def output_shapes_missing(call: ProxyCall, request: Any) -> Any:
    """Return no output shapes."""
    result = call.forward(request)
    del result.output_shapes[:]
    return result


@fault("GEN-24", on=(EXECUTE,))
def insufficient_size_as_an_error(call: ProxyCall, request: Any) -> Any:
    """Fail the call with OUTPUT_INSUFFICIENT_SIZE instead of returning a result."""
    result = call.forward(request)
    if not result.output_sufficient_size:
        raise _failure(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return result


@fault("GEN-25", on=(EXECUTE,), select=("topk_float",))
def every_output_insufficient(call: ProxyCall, request: Any) -> Any:
    """Report output 1 as insufficient too if output 0 is too small."""
    result = call.forward(request)
    for shape in result.output_shapes:
        shape.is_sufficient = result.output_sufficient_size
    return result


@fault("GEN-26", on=(EXECUTE,))
def rank_lost_where_insufficient(call: ProxyCall, request: Any) -> Any:
    """Return shapes without dimensions if output 0 is too small."""
    result = call.forward(request)
    for shape in result.output_shapes:
        if not result.output_sufficient_size:
            shape.ClearField("dimensions")
    return result


@fault("GEN-33", "QOS-12", on=(EXECUTE,), select=("while_without_end", "add_float"))
def missed_deadline_as_unavailable(call: ProxyCall, request: Any) -> Any:
    """Report a missed deadline as DEVICE_UNAVAILABLE."""

    def change(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        missed = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
        if detail is None or int(detail.status) not in missed:
            return error
        return _failure(ErrorStatus.DEVICE_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE)

    return replace_errors(call, request, change)


@fault("EXTRA-07", on=(EXECUTE,))
def parallel_executions_share_outputs(call: ProxyCall, request: Any) -> Any:
    """Return the outputs of the previous execution from concurrent executions."""
    running = call.state.setdefault("running", [])
    running.append(call)
    time.sleep(OVERLAP_S)
    result = call.forward(request)
    is_alone = len(running) == 1
    running.remove(call)
    own_outputs = types_pb2.ExecutionResult(returned=result.returned)
    if not is_alone and "outputs" in call.state:
        del result.returned[:]
        result.returned.extend(call.state["outputs"].returned)
    call.state["outputs"] = own_outputs
    return result


@fault("NNHAL-14", on=(EXECUTE,))
def returned_pool_has_a_size(call: ProxyCall, request: Any) -> Any:
    """Limit a ReturnedPool without a size to one byte."""
    for pool in request.request.pools:
        if pool.HasField("returned") and not pool.returned.HasField("size"):
            pool.returned.size = 1
    return call.forward(request)


@fault("NNHAL-15", on=(EXECUTE,))
def bytes_of_outputs_that_do_not_fit(call: ProxyCall, request: Any) -> Any:
    """Return bytes although an output is too small."""
    result = call.forward(request)
    if not result.output_sufficient_size:
        result.returned.add(inline=b"half")
    return result


@fault("NNHAL-16", on=(EXECUTE,))
def large_outputs_dropped(call: ProxyCall, request: Any) -> Any:
    """Drop outputs that are too large for a message."""
    result = call.forward(request)
    for output in result.returned:
        output.ClearField("memory")
    return result


def _failure(status: ErrorStatus, code: grpc.StatusCode) -> InjectedError:
    return InjectedError(code, error_pb2.ErrorDetail(status=int(status), reason="injected fault"))  # type: ignore[arg-type]
