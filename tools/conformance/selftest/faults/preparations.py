"""Faults in the stream of a preparation, and in what is said of a model beforehand."""

import time
from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorStatus, OperandType
from nnhal.v1 import device_pb2, error_pb2
from tools.conformance.selftest.fault import PREPARE, SUPPORTED, TOGETHER_S, fault, preparation
from tools.conformance.selftest.proxy import Call, Refusal


@fault("PREP-01", on=(SUPPORTED,))
def supported_operations_fails(call: Call, request: Any) -> Any:
    """getSupportedOperations fails, and does not say why."""
    raise Refusal(grpc.StatusCode.INTERNAL)


@fault("PREP-02", on=(SUPPORTED,))
def supported_operations_one_short(call: Call, request: Any) -> Any:
    """getSupportedOperations leaves out the last operation."""
    response = call.forward(request)
    response.supported.pop()
    return response


@fault("PREP-03", on=(PREPARE,))
def launch_busy(call: Call, request: Any) -> Iterator[Any]:
    """Every launch fails with DEVICE_UNAVAILABLE."""
    unavailable: Any = ErrorStatus.DEVICE_UNAVAILABLE
    detail = error_pb2.ErrorDetail(status=unavailable, reason="busy")
    yield device_pb2.PrepareModelEvent(notify=device_pb2.Notify(status=unavailable, reason="busy"))
    raise Refusal(grpc.StatusCode.UNAVAILABLE, detail)


@fault("PREP-04", "NNHAL-07", on=(PREPARE,))
def notify_never(call: Call, request: Any) -> Iterator[Any]:
    """The stream of a preparation ends without notify."""
    for event in call.forward(request):
        if event.HasField("launched"):
            yield event


@fault("EXTRA-01", "NNHAL-07", on=(PREPARE,))
def notify_twice(call: Call, request: Any) -> Iterator[Any]:
    """A preparation notifies twice, with the same outcome."""
    for event in call.forward(request):
        yield event
        if event.HasField("notify"):
            yield event


@fault("NNHAL-07", on=(PREPARE,))
def notify_before_launched(call: Call, request: Any) -> Iterator[Any]:
    """notify comes first, then launched."""
    yield from list(call.forward(request))[::-1]


@fault("PREP-05", on=(PREPARE,))
def supported_and_then_refused(call: Call, request: Any) -> Iterator[Any]:
    """Every operation is supported, and yet preparing ends with GENERAL_FAILURE."""
    for event in call.forward(request):
        if event.notify.prepared_model:
            failure: Any = ErrorStatus.GENERAL_FAILURE
            event.notify.CopyFrom(device_pb2.Notify(status=failure, reason="no"))
        yield event


@fault("PREP-06", on=(PREPARE,))
def null_model_with_none(call: Call, request: Any) -> Iterator[Any]:
    """The callback says NONE, and brings no model."""
    for event in call.forward(request):
        event.notify.prepared_model = b""
        yield event if event.notify.ByteSize() else device_pb2.PrepareModelEvent(launched=device_pb2.Launched())


@fault("BASIC-11", "VALMODEL-02", on=(PREPARE,))
def model_with_an_error(call: Call, request: Any) -> Iterator[Any]:
    """The callback has an error, and a model with it."""
    for event in call.forward(request):
        if event.notify.status:
            event.notify.prepared_model = b"made up"
        yield event


@fault("BASIC-10", "VALMODEL-02", on=(PREPARE,))
def launch_ok_after_an_error(call: Call, request: Any) -> Iterator[Any]:
    """The callback notifies an error, and then the launch says OK."""
    try:
        yield from call.forward(request)
    except grpc.RpcError:
        return


@fault("VALMODEL-02", "NNHAL-05", on=(PREPARE,))
def launch_error_in_the_callback_alone(call: Call, request: Any) -> Iterator[Any]:
    """What should fail the launch comes as an error of the callback, after launched."""
    yield device_pb2.PrepareModelEvent(launched=device_pb2.Launched())
    try:
        for event in call.forward(request):
            if event.HasField("notify"):
                yield event
    except grpc.RpcError:
        return


@fault("QOS-02", on=(PREPARE,))
def callback_error_as_launch_error(call: Call, request: Any) -> Iterator[Any]:
    """An error that belongs in the callback, a missed deadline, fails the launch."""
    for event in call.forward(request):
        missed = event.notify.status in (
            ErrorStatus.MISSED_DEADLINE_TRANSIENT,
            ErrorStatus.MISSED_DEADLINE_PERSISTENT,
        )
        if missed:
            raise _as_error(event.notify)
        if not event.HasField("launched"):
            yield from preparation(device_pb2.Launched(), event.notify)


@fault("VALMODEL-02", on=(PREPARE,))
def launch_error_without_a_callback(call: Call, request: Any) -> Iterator[Any]:
    """A launch error comes without a notify before it."""
    events = call.forward(request)
    first = next(events)
    if not first.notify.status:
        yield first
    yield from events


@fault("GEN-02", on=("Device.PrepareModelWithConfig",))
def configured_model_is_another(call: Call, request: Any) -> Iterator[Any]:
    """prepareModelWithConfig forgets the zero points of the model's inputs."""
    main = request.model.main
    for i in main.input_indexes:
        main.operands[i].zero_point = 0
    yield from call.forward(request)


@fault("GEN-34", on=(SUPPORTED, PREPARE))
def signed_quantisation_unsupported(call: Call, request: Any) -> Any:
    """Models with TENSOR_QUANT8_ASYMM_SIGNED are not supported, though their unsigned twins are."""
    operands = request.model.main.operands
    if not any(operand.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED for operand in operands):
        return call.forward(request)
    if call.method == SUPPORTED:
        count = len(request.model.main.operations)
        return device_pb2.GetSupportedOperationsResponse(supported=[False] * count)
    failure: Any = ErrorStatus.GENERAL_FAILURE
    return preparation(device_pb2.Launched(), device_pb2.Notify(status=failure, reason="signed"))


@fault("EXTRA-13", on=(SUPPORTED,))
def unknown_extension_supported(call: Call, request: Any) -> Any:
    """An operation of an extension that the device does not have counts as supported."""
    response = call.forward(request)
    response.supported[:] = [True] * len(response.supported)
    return response


@fault("EXTRA-24", on=(PREPARE,))
def parallel_preparations_share_a_model(call: Call, request: Any) -> Iterator[Any]:
    """Of preparations that run at once, some bring the model of another."""
    running = call.kept.setdefault("running", [])
    running.append(call)
    time.sleep(TOGETHER_S)
    for event in call.forward(request):
        if event.notify.prepared_model:
            if len(running) > 1 and "model" in call.kept:
                event.notify.prepared_model = call.kept["model"]
            call.kept["model"] = event.notify.prepared_model
            running.remove(call)
        yield event


@fault("EXTRA-19", on=(PREPARE, "Session.Release"))
def memory_released_under_its_model(call: Call, request: Any) -> Any:
    """Releasing a memory takes the prepared models with it whose constants lay there."""
    if call.streams:
        return _with_memories(call, request)
    for handle in list(request.handles):
        request.handles.extend(call.kept.get(handle, []))
    return call.forward(request)


def _with_memories(call: Call, request: Any) -> Iterator[Any]:
    for event in call.forward(request):
        for pool in request.model.pools:
            call.kept.setdefault(pool.mapped.memory, []).append(event.notify.prepared_model)
        yield event


@fault("NNHAL-23", on=(PREPARE,))
def placement_missing(call: Call, request: Any) -> Iterator[Any]:
    """A prepared model does not say where its operations run."""
    for event in call.forward(request):
        if event.HasField("notify"):
            event.notify.ClearField("placement")
        yield event


@fault("NNHAL-05", on=(PREPARE,))
def callback_and_launch_disagree(call: Call, request: Any) -> Iterator[Any]:
    """The callback names another rule than the launch error of the same refusal."""
    for event in call.forward(request):
        if event.notify.rule:
            event.notify.rule = "V-OTHER-01"
        yield event


def _as_error(notify: device_pb2.Notify) -> Refusal:
    detail = error_pb2.ErrorDetail(status=notify.status, reason=notify.reason)
    return Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, detail)
