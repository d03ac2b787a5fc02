"""Faults in how an execution answers: timing, shapes, statuses."""

import time
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import error_pb2, types_pb2
from tools.conformance.selftest.fault import EXECUTE, TOGETHER_S, fault, with_errors
from tools.conformance.selftest.proxy import Call, Refusal, detail_of


@fault("GEN-12", "QOS-11", on=(EXECUTE,))
def timing_without_being_asked(call: Call, request: Any) -> Any:
    """Timing comes although it was not asked for."""
    result = call.forward(request)
    if result.timing.time_in_driver_ns == -1:
        result.timing.time_in_driver_ns = 1000
    return result


@fault("GEN-13", on=(EXECUTE,))
def device_longer_than_driver(call: Call, request: Any) -> Any:
    """The time on the device is longer than the time in the driver that it is part of."""
    result = call.forward(request)
    if result.timing.time_on_device_ns != -1:
        result.timing.time_on_device_ns = result.timing.time_in_driver_ns + 1
    return result


@fault("GEN-04", on=(EXECUTE,))
def execution_error_without_details(call: Call, request: Any) -> Any:
    """An execution fails without a service-specific error."""
    raise Refusal(grpc.StatusCode.INTERNAL)


@fault("GEN-14", on=(EXECUTE,))
def general_failure_of_timed_executions(call: Call, request: Any) -> Any:
    """An execution that is to be timed ends with GENERAL_FAILURE."""
    config = request.config if request.DESCRIPTOR.name == "ExecuteSynchronouslyWithConfigRequest" else request
    if config.measure_timing:
        raise _failure(ErrorStatus.GENERAL_FAILURE, grpc.StatusCode.INTERNAL)
    return call.forward(request)


@fault("GEN-17", on=(EXECUTE,))
def stale_output_shapes(call: Call, request: Any) -> Any:
    """Output shapes are those of the execution before."""
    result = call.forward(request)
    fresh = types_pb2.ExecutionResult(output_shapes=result.output_shapes)
    stale = call.kept.get("shapes", fresh)
    if len(stale.output_shapes) == len(result.output_shapes):
        del result.output_shapes[:]
        result.output_shapes.extend(stale.output_shapes)
    call.kept["shapes"] = fresh
    return result


@fault("GEN-21", on=(EXECUTE,))
def output_shapes_missing(call: Call, request: Any) -> Any:
    """An execution never tells output shapes."""
    result = call.forward(request)
    del result.output_shapes[:]
    return result


@fault("GEN-24", on=(EXECUTE,))
def insufficient_size_as_an_error(call: Call, request: Any) -> Any:
    """A region that is too small fails the call with OUTPUT_INSUFFICIENT_SIZE, where a result is due."""
    result = call.forward(request)
    if not result.output_sufficient_size:
        raise _failure(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return result


@fault("GEN-25", on=(EXECUTE,), select=("topk_float",))
def every_output_insufficient(call: Call, request: Any) -> Any:
    """Where output 0 is too small, output 1 is said to be too small as well."""
    result = call.forward(request)
    for shape in result.output_shapes:
        shape.is_sufficient = result.output_sufficient_size
    return result


@fault("GEN-26", on=(EXECUTE,))
def rank_lost_where_insufficient(call: Call, request: Any) -> Any:
    """Where output 0 is too small, shapes have no dimensions."""
    result = call.forward(request)
    for shape in result.output_shapes:
        if not result.output_sufficient_size:
            shape.ClearField("dimensions")
    return result


@fault("GEN-33", "QOS-12", on=(EXECUTE,), select=("while_without_end", "add_float"))
def missed_deadline_as_unavailable(call: Call, request: Any) -> Any:
    """An execution that misses its time ends with DEVICE_UNAVAILABLE."""

    def change(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        missed = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
        if detail is None or int(detail.status) not in missed:
            return error
        return _failure(ErrorStatus.DEVICE_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE)

    return with_errors(call, request, change)


@fault("EXTRA-07", on=(EXECUTE,))
def parallel_executions_share_outputs(call: Call, request: Any) -> Any:
    """Of executions that run at once, each brings the outputs of the one that ended before it."""
    running = call.kept.setdefault("running", [])
    running.append(call)
    time.sleep(TOGETHER_S)
    result = call.forward(request)
    alone = len(running) == 1
    running.remove(call)
    own = types_pb2.ExecutionResult(returned=result.returned)
    if not alone and "outputs" in call.kept:
        del result.returned[:]
        result.returned.extend(call.kept["outputs"].returned)
    call.kept["outputs"] = own
    return result


@fault("NNHAL-14", on=(EXECUTE,))
def returned_pool_has_a_size(call: Call, request: Any) -> Any:
    """A ReturnedPool without a size holds one byte."""
    for pool in request.request.pools:
        if pool.HasField("returned") and not pool.returned.HasField("size"):
            pool.returned.size = 1
    return call.forward(request)


@fault("NNHAL-15", on=(EXECUTE,))
def bytes_of_outputs_that_do_not_fit(call: Call, request: Any) -> Any:
    """Where an output is too small, bytes come back nevertheless."""
    result = call.forward(request)
    if not result.output_sufficient_size:
        result.returned.add(inline=b"half")
    return result


@fault("NNHAL-16", on=(EXECUTE,))
def large_outputs_dropped(call: Call, request: Any) -> Any:
    """Outputs that fit no message do not come back."""
    result = call.forward(request)
    for output in result.returned:
        output.ClearField("memory")
    return result


def _failure(status: ErrorStatus, code: grpc.StatusCode) -> Refusal:
    return Refusal(code, error_pb2.ErrorDetail(status=int(status), reason="a fault"))  # type: ignore[arg-type]
