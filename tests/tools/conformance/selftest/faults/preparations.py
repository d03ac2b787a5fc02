"""Faults in the stream of a preparation and in getSupportedOperations."""

import time
from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorStatus, OperandType
from nnhal.v1 import device_pb2, error_pb2
from tests.tools.conformance.selftest.fault import OVERLAP_S, PREPARE, SUPPORTED, fault, preparation_events
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall


@fault("PREP-01", on=(SUPPORTED,))
def supported_operations_fails(call: ProxyCall, request: Any) -> Any:
    """Fail getSupportedOperations without a service-specific error."""
    raise InjectedError(grpc.StatusCode.INTERNAL)


@fault("PREP-02", on=(SUPPORTED,))
def supported_operations_one_short(call: ProxyCall, request: Any) -> Any:
    """Omit the last operation in the list of supported operations."""
    response = call.forward(request)
    response.supported.pop()
    return response


@fault("PREP-03", on=(PREPARE,))
def launch_busy(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail every launch with DEVICE_UNAVAILABLE."""
    unavailable: Any = ErrorStatus.DEVICE_UNAVAILABLE
    detail = error_pb2.ErrorDetail(status=unavailable, reason="busy")
    yield device_pb2.PrepareModelEvent(notify=device_pb2.Notify(status=unavailable, reason="busy"))
    raise InjectedError(grpc.StatusCode.UNAVAILABLE, detail)


@fault("PREP-04", "NNHAL-07", on=(PREPARE,))
def notify_never(call: ProxyCall, request: Any) -> Iterator[Any]:
    """End the stream of a preparation without `notify`."""
    for event in call.forward(request):
        if event.HasField("launched"):
            yield event


@fault("EXTRA-01", "NNHAL-07", on=(PREPARE,))
def notify_twice(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Send `notify` twice with the same outcome."""
    for event in call.forward(request):
        yield event
        if event.HasField("notify"):
            yield event


@fault("NNHAL-07", on=(PREPARE,))
def notify_before_launched(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Send `notify` before `launched`."""
    yield from list(call.forward(request))[::-1]


@fault("PREP-05", on=(PREPARE,))
def supported_and_then_refused(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report every operation as supported, and fail the preparation with GENERAL_FAILURE."""
    for event in call.forward(request):
        if event.notify.prepared_model:
            failure: Any = ErrorStatus.GENERAL_FAILURE
            event.notify.CopyFrom(device_pb2.Notify(status=failure, reason="no"))
        yield event


@fault("PREP-06", on=(PREPARE,))
def null_model_with_none(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report NONE in the callback without a model."""
    for event in call.forward(request):
        event.notify.prepared_model = b""
        yield event if event.notify.ByteSize() else device_pb2.PrepareModelEvent(launched=device_pb2.Launched())


@fault("BASIC-11", "VALMODEL-02", on=(PREPARE,))
def model_with_an_error(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Return a model together with an error in the callback."""
    for event in call.forward(request):
        if event.notify.status:
            event.notify.prepared_model = b"made up"
        yield event


@fault("BASIC-10", "VALMODEL-02", on=(PREPARE,))
def launch_ok_after_an_error(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report an error in the callback, and then a successful launch."""
    try:
        yield from call.forward(request)
    except grpc.RpcError:
        return


@fault("VALMODEL-02", "NNHAL-05", on=(PREPARE,))
def launch_error_in_the_callback_alone(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Report a launch error only in the callback, after `launched`."""
    yield device_pb2.PrepareModelEvent(launched=device_pb2.Launched())
    try:
        for event in call.forward(request):
            if event.HasField("notify"):
                yield event
    except grpc.RpcError:
        return


@fault("QOS-02", on=(PREPARE,))
def callback_error_as_launch_error(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Fail the launch for a missed deadline, which should be an error of the callback."""
    for event in call.forward(request):
        missed = event.notify.status in (
            ErrorStatus.MISSED_DEADLINE_TRANSIENT,
            ErrorStatus.MISSED_DEADLINE_PERSISTENT,
        )
        if missed:
            raise _as_error(event.notify)
        if not event.HasField("launched"):
            yield from preparation_events(device_pb2.Launched(), event.notify)


@fault("VALMODEL-02", on=(PREPARE,))
def launch_error_without_a_callback(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Omit the `notify` before a launch error."""
    events = call.forward(request)
    first = next(events)
    if not first.notify.status:
        yield first
    yield from events


@fault("EXTRA-01", on=(PREPARE,), select=())
def lost_session_without_a_callback(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Omit the `notify` if the session of the client has ended."""
    for event in call.forward(request):
        if event.notify.status != ErrorStatus.DEVICE_UNAVAILABLE:
            yield event


@fault("GEN-02", on=("Device.PrepareModelWithConfig",))
def configured_model_is_another(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Ignore the zero points of the model's inputs in prepareModelWithConfig."""
    main = request.model.main
    for i in main.input_indexes:
        main.operands[i].zero_point = 0
    yield from call.forward(request)


@fault("GEN-34", on=(SUPPORTED, PREPARE))
def signed_quantization_unsupported(call: ProxyCall, request: Any) -> Any:
    """Do not support models with TENSOR_QUANT8_ASYMM_SIGNED, but support their unsigned variants."""
    operands = request.model.main.operands
    if not any(operand.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED for operand in operands):
        return call.forward(request)
    if call.method == SUPPORTED:
        count = len(request.model.main.operations)
        return device_pb2.GetSupportedOperationsResponse(supported=[False] * count)
    failure: Any = ErrorStatus.GENERAL_FAILURE
    return preparation_events(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="signed"))


@fault("EXTRA-13", on=(SUPPORTED,))
def unknown_extension_supported(call: ProxyCall, request: Any) -> Any:
    """Report operations of an unknown extension as supported."""
    response = call.forward(request)
    response.supported[:] = [True] * len(response.supported)
    return response


@fault("EXTRA-24", on=(PREPARE,))
def parallel_preparations_share_a_model(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Return the model of another preparation from concurrent preparations."""
    running = call.state.setdefault("running", [])
    running.append(call)
    time.sleep(OVERLAP_S)
    for event in call.forward(request):
        if event.notify.prepared_model:
            if len(running) > 1 and "model" in call.state:
                event.notify.prepared_model = call.state["model"]
            call.state["model"] = event.notify.prepared_model
            running.remove(call)
        yield event


@fault("EXTRA-19", on=(PREPARE, "Session.Release"))
def memory_released_under_its_model(call: ProxyCall, request: Any) -> Any:
    """Release prepared models together with the memory of their constants."""
    if call.streams_responses:
        return _with_memories(call, request)
    for handle in list(request.handles):
        request.handles.extend(call.state.get(handle, []))
    return call.forward(request)


def _with_memories(call: ProxyCall, request: Any) -> Iterator[Any]:
    for event in call.forward(request):
        for pool in request.model.pools:
            call.state.setdefault(pool.mapped.memory, []).append(event.notify.prepared_model)
        yield event


@fault("NNHAL-23", on=(PREPARE,))
def placement_missing(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Omit the placement of a prepared model."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("placement")
        yield event


@fault("NNHAL-05", on=(PREPARE,))
def callback_and_launch_disagree(call: ProxyCall, request: Any) -> Iterator[Any]:
    """Name different rules in the callback and in the launch error of a rejection."""
    for event in call.forward(request):
        if event.notify.rule:
            event.notify.rule = "V-OTHER-01"
        yield event


def _as_error(notify: device_pb2.Notify) -> InjectedError:
    detail = error_pb2.ErrorDetail(status=notify.status, reason=notify.reason)
    return InjectedError(grpc.StatusCode.DEADLINE_EXCEEDED, detail)
