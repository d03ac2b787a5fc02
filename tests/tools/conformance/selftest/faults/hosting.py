"""Faults of services that run plug-ins."""

from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import DeviceType, ErrorStatus
from nnhal.v1 import device_pb2, error_pb2, types_pb2
from nnhal_tools.conformance.device.interposer import Trace
from tests.tools.conformance.selftest.fault import (
    PREPARE,
    SUPPORTED,
    accept_model,
    fault,
    invalid_argument,
    trace_fault,
)
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall

_CPU: Any = DeviceType.CPU
_MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


@fault("HOST-01", on=(PREPARE,), select=())
def callback_lost_with_its_thread(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Lose the callback and the thread of a preparation whose backend exits."""
    for event in call.forward(request):
        if event.HasField("notify") and event.notify.status:
            raise InjectedError(grpc.StatusCode.DEADLINE_EXCEEDED)
        yield event


@fault("HOST-02", on=(SUPPORTED,), select=())
def invalid_answer_of_a_backend_fails_the_call(call: ProxyCall, request: Any) -> Any:
    """Fail getSupportedOperations of a service with plug-ins."""
    failure: Any = ErrorStatus.GENERAL_FAILURE
    detail = error_pb2.ErrorDetail(status=failure, reason="'NoneType' object has no attribute 'reason'")
    raise InjectedError(grpc.StatusCode.INTERNAL, detail)


@fault("HOST-03", on=("Device.GetCapabilities",), select=())
def invalid_performance_passed_on(call: ProxyCall, request: Any) -> Any:
    """Multiply the figures of a backend by those that it states, whatever they are."""
    capabilities = call.forward(request)
    for entry in capabilities.operand_performance:
        entry.info.exec_time, entry.info.power_usage = 0, -1
    return capabilities


@fault("HOST-16", on=("Device.GetCapabilities",), select=())
def types_measured_with_one_workload(call: ProxyCall, request: Any) -> Any:
    """List no performance, because the backend does not run the workload that is measured."""
    capabilities = call.forward(request)
    capabilities.ClearField("operand_performance")
    return capabilities


@fault("HOST-04", on=("Device.GetSupportedExtensions",), select=())
def extension_of_a_backend_unchecked(call: ProxyCall, request: Any) -> Any:
    """Pass on any name of an extension."""
    return device_pb2.GetSupportedExtensionsResponse(extensions=[types_pb2.Extension(name="NoPeriod")])


@fault("HOST-05", on=("Device.Allocate",), select=())
def no_buffers_of_extension_types(call: ProxyCall, request: Any) -> Any:
    """Reject buffers of all types of extensions."""
    failure: Any = ErrorStatus.GENERAL_FAILURE
    detail = error_pb2.ErrorDetail(status=failure, reason="buffers of extension types are not supported")
    raise InjectedError(grpc.StatusCode.INTERNAL, detail)


@fault("HOST-05", on=("PreparedModel.ExecuteFenced*",), select=())
def no_fenced_executions_of_extensions(call: ProxyCall, request: Any) -> Any:
    """Reject fenced executions of models with an extension."""
    raise invalid_argument("extension types are not supported in fenced executions")


@fault("HOST-05", on=("PreparedModel.*",), select=())
def supported_extension_fails_to_execute(call: ProxyCall, request: Any) -> Any:
    """Fail each execution of an operation of an extension that was reported as supported."""
    failure: Any = ErrorStatus.GENERAL_FAILURE
    raise InjectedError(grpc.StatusCode.INTERNAL, error_pb2.ErrorDetail(status=failure, reason="KeyError: 196609"))


@fault("HOST-06", on=(SUPPORTED, PREPARE), select=())
def extension_constants_unchecked(call: ProxyCall, request: Any) -> Any:
    """Accept constants of extension types of any size."""
    return accept_model(call, request)


@fault("HOST-12", on=(SUPPORTED,), select=())
def modules_beside_a_plugin_ignored(call: ProxyCall, request: Any) -> Any:
    """Support only the operations of the file of a plug-in."""
    return device_pb2.GetSupportedOperationsResponse(supported=[False] * len(request.model.main.operations))


@fault("HOST-08", on=(PREPARE,), select=())
def deadline_unknown_to_backends(call: ProxyCall, request: Any) -> Any:
    """Wait for a compilation to end, whatever the deadline."""
    request.ClearField("deadline_ns")
    return call.forward(request)


@fault("HOST-09", on=(PREPARE,), select=())
def lost_time_in_the_queue_is_persistent(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a deadline that passed in the queue as PERSISTENT."""
    for event in call.forward(request):
        if event.notify.status in _MISSED:
            event.notify.status = ErrorStatus.MISSED_DEADLINE_PERSISTENT
        yield event


@fault("HOST-11", on=("Device.GetVersionString",), select=())
def version_of_a_plugin_alone(call: ProxyCall, request: Any) -> Any:
    """Take the version of a backend from the backend alone, so that an edited one has the same."""
    return device_pb2.GetVersionStringResponse(version="nnhal/1 Witness/1")


@trace_fault("HOST-07")
def notices_for_each_part(trace: Trace) -> Trace:
    """Notify a backend for each of its parts of a network."""
    return [event for event in trace for _ in range(2 if "before-load-network" in event else 1)]


@trace_fault("HOST-07")
def optimized_before_the_notice(trace: Trace) -> Trace:
    """Optimize a network before the backend is told of it."""
    notices = [index for index, event in enumerate(trace) if "before-load-network" in event]
    if not notices:
        return trace
    rest = [event for event in trace[notices[0] :] if event != "optimize"]
    return [*trace[: notices[0]], "optimize", *rest]


@trace_fault("HOST-08")
def compilation_outlives_its_client(trace: Trace) -> Trace:
    """Continue a compilation that was cancelled."""
    ends = [index for index, event in enumerate(trace) if event == "compile ends"]
    return [event for index, event in enumerate(trace) if index not in ends[1:]]


@fault("HOST-14", on=("Device.GetType",), select=())
def every_device_is_a_cpu(call: ProxyCall, request: Any) -> Any:
    """Report the type CPU, whatever the backends are."""
    return device_pb2.GetTypeResponse(type=_CPU)


@trace_fault("HOST-13")
def options_lost(trace: Trace) -> Trace:
    """Create backends without the options of the operator."""
    return [event.replace("blue", "none") for event in trace]


@trace_fault("HOST-15")
def allocator_kept_from_backends(trace: Trace) -> Trace:
    """Offer no backend the allocator of the operator."""
    return [event for event in trace if event != "use-allocator"]


@trace_fault("HOST-17")
def memory_copied_by_the_host(trace: Trace) -> Trace:
    """Copy values of backends without their help."""
    return [event for event in trace if event != "copy"]


@trace_fault("HOST-17")
def work_not_waited_for(trace: Trace) -> Trace:
    """Return the outputs of an execution without waiting for the work of its backend."""
    return [event for event in trace if event != "wait"]


@trace_fault("HOST-18")
def workloads_without_a_memory_manager(trace: Trace) -> Trace:
    """Create workloads without the memory manager of their backend."""
    return [event for event in trace if event != "workload-factory with the manager"]


@trace_fault("HOST-19")
def profiles_of_one_call_alone(trace: Trace) -> Trace:
    """Profile only the first execution."""
    notices = [event for event in trace if event.startswith("profile")][2:]
    return [event for event in trace if event not in notices]


@trace_fault("HOST-10")
def backend_never_closed(trace: Trace) -> Trace:
    """Stop the service without closing its backends."""
    return [event for event in trace if event != "close"]
