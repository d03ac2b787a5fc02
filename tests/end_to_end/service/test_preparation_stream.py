"""Messages of the preparation stream in order, for each way that a preparation can end."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from nnhal.types import AnyArray
from nnhal.v1 import device_pb2, enums_pb2, error_pb2, memory_pb2, session_pb2, types_pb2
from tests.concurrency import wait_until
from tests.end_to_end.support.preparation_events import kinds, read_events
from tests.end_to_end.support.raw_client import (
    F32,
    ModelWriter,
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service


@pytest.fixture
def raw(service: Service) -> Iterator[RawSession]:
    with open_raw_session(service.target) as session:
        yield session


def each_operation() -> tuple[types_pb2.Model, dict[str, AnyArray]]:
    """Return a model with nine operations of different kinds, and its weights."""
    rng = np.random.default_rng(7)
    weights = {
        "filter": rng.standard_normal((4, 1, 1, 3)).astype(np.float32),
        "depthwise": rng.standard_normal((1, 1, 1, 4)).astype(np.float32),
        "dense": rng.standard_normal((5, 16)).astype(np.float32),
    }
    w = ModelWriter()
    bias = {n: w.constant(F32, np.zeros(n, np.float32)) for n in (4, 5)}
    image = w.input((1, 4, 4, 3))
    valid, one, two, none = w.number(2), w.number(1), w.number(2), w.number(0)
    filter_, depthwise, dense = (w.constant(F32, weights[name]) for name in ("filter", "depthwise", "dense"))
    x = w.apply("CONV_2D", [image, filter_, bias[4], valid, one, one, none], (1, 4, 4, 4))
    x = w.apply("DEPTHWISE_CONV_2D", [x, depthwise, bias[4], valid, one, one, one, none], (1, 4, 4, 4))
    x = w.apply("AVERAGE_POOL_2D", [x, valid, two, two, two, two, none], (1, 2, 2, 4))
    x = w.apply("ADD", [x, x, none], (1, 2, 2, 4))
    shape = w.constant(enums_pb2.OPERAND_TYPE_TENSOR_INT32, np.array([1, -1], np.int32))
    x = w.apply("RESHAPE", [x, shape], (1, 16))
    x = w.apply("FULLY_CONNECTED", [x, dense, bias[5], none], (1, 5))
    beta = w.constant(enums_pb2.OPERAND_TYPE_FLOAT32, np.float32(1))  # type: ignore[arg-type]
    x = w.apply("SOFTMAX", [x, beta], (1, 5))
    x = w.apply("QUANTIZE", [x], (1, 5), type_=enums_pb2.OPERAND_TYPE_TENSOR_QUANT8_ASYMM, scale=1 / 256)
    w.apply("DEQUANTIZE", [x], (1, 5), last=True)
    return w.model, weights


def expected(image: AnyArray, weights: dict[str, AnyArray]) -> AnyArray:
    """Return the output of that model, computed with numpy."""
    x = np.einsum("bhwc,oijc->bhwo", image, weights["filter"]) * weights["depthwise"][0, 0, 0]
    x = 2 * x.reshape(1, 2, 2, 2, 2, 4).mean(axis=(2, 4))
    logits = x.reshape(1, 16) @ weights["dense"].T
    powers = np.exp(logits - logits.max())
    steps = np.clip(np.round(powers / powers.sum() * 256), 0, 255)
    probabilities: AnyArray = (steps / 256).astype(np.float32)
    return probabilities


def test_success(raw: RawSession) -> None:
    model, weights = each_operation()
    events, error = read_events(raw.device.PrepareModel(prepare_request(raw, model)))

    assert error is None
    assert kinds(events) == ["launched", "notify"]
    notify = events[1].notify
    assert notify.status == enums_pb2.ERROR_STATUS_NONE
    assert [o.backend for o in notify.placement.operations] == ["CpuAcc"] * 9
    assert [list(o.dimensions) for o in notify.inputs] == [[1, 4, 4, 3]]

    image = np.random.default_rng(1).standard_normal((1, 4, 4, 3)).astype(np.float32)
    result = raw.prepared_model.ExecuteSynchronously(execute_request(raw, notify.prepared_model, [image]))
    assert result.output_sufficient_size
    assert [list(shape.dimensions) for shape in result.output_shapes] == [[1, 5]]
    output = np.frombuffer(result.returned[0].inline, np.float32)
    np.testing.assert_allclose(output, expected(image, weights).ravel(), atol=1 / 256)


def test_with_config(raw: RawSession) -> None:
    config = types_pb2.PrepareModelConfig(preference=1, priority=2)  # type: ignore[arg-type]
    request = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=add_chain(2), config=config)
    events, error = read_events(raw.device.PrepareModelWithConfig(request))
    assert (kinds(events), error) == (["launched", "notify"], None)
    assert events[1].notify.prepared_model


def test_launch_error_notifies_first_and_then_fails(raw: RawSession) -> None:
    model = add_chain(2)
    model.main.operands[1].scale = 0.5
    events, error = read_events(raw.device.PrepareModel(prepare_request(raw, model)))

    assert kinds(events) == ["notify"]
    assert events[0].notify.status == enums_pb2.ERROR_STATUS_INVALID_ARGUMENT
    assert events[0].notify.rule == "V-OPERAND-07"
    assert not events[0].notify.prepared_model
    assert isinstance(error, grpc.Call)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error_detail(error).status == enums_pb2.ERROR_STATUS_INVALID_ARGUMENT
    assert error_detail(error).reason == events[0].notify.reason
    assert "operand 1 of main" in error_detail(error).reason


def test_callback_error_follows_a_good_launch(raw: RawSession) -> None:
    model = add_chain(2)
    model.extension_name_to_prefix.add(name="org.example.test", prefix=1)
    model.main.operations[1].type = 0x00010007  # type: ignore[assignment]
    events, error = read_events(raw.device.PrepareModel(prepare_request(raw, model)))

    assert error is None
    assert kinds(events) == ["launched", "notify"]
    assert events[1].notify.status == enums_pb2.ERROR_STATUS_GENERAL_FAILURE
    assert "operation 1 of main" in events[1].notify.reason
    assert not events[1].notify.prepared_model


@pytest.mark.parametrize("deadline_ns", [0, 1])
def test_missed_deadline_follows_a_good_launch(raw: RawSession, deadline_ns: int) -> None:
    events, error = read_events(raw.device.PrepareModel(prepare_request(raw, add_chain(2), deadline_ns)))

    assert error is None
    assert kinds(events) == ["launched", "notify"]
    assert events[1].notify.status in (
        enums_pb2.ERROR_STATUS_MISSED_DEADLINE_TRANSIENT,
        enums_pb2.ERROR_STATUS_MISSED_DEADLINE_PERSISTENT,
    )
    assert not events[1].notify.prepared_model


def test_cancellation_abandons_the_work(raw: RawSession, service: Service) -> None:
    # both preparation threads are busy, so the last preparation is still queued when it is cancelled
    busy = [raw.device.PrepareModel(prepare_request(raw, add_chain(1000))) for _ in range(6)]
    launched = [next(iter(other)).WhichOneof("event") for other in busy]
    stream = raw.device.PrepareModel(prepare_request(raw, add_chain(1000)))
    first = next(iter(stream))
    stream.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        next(iter(stream))

    assert first.WhichOneof("event") == "launched"
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert launched == ["launched"] * len(busy)
    for other in busy:
        assert kinds(read_events(other)[0]) == ["notify"]
    assert wait_until(lambda: service.logged("cancelled by the client")), "the service has not abandoned the work"


def test_model_does_not_change_with_its_memory(raw: RawSession) -> None:
    constants = np.full(3, 9, np.float32)
    memory = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=constants.nbytes)).memory

    def upload(values: AnyArray) -> None:
        request = memory_pb2.UploadRequest(session=raw.session, memory=memory, data=values.tobytes())
        raw.memory.Upload(iter([request]))

    upload(constants)
    w = ModelWriter()
    x, nine, none = w.input((3,)), w.constant(F32, constants), w.number(0)
    w.apply("ADD", [x, nine, none], (3,), last=True)
    operand = w.model.main.operands[nine]
    operand.lifetime = enums_pb2.OPERAND_LIFE_TIME_CONSTANT_POOL
    operand.location.CopyFrom(types_pb2.DataLocation(length=constants.nbytes))
    w.model.pools.add().mapped.memory = memory
    stream = raw.device.PrepareModel(prepare_request(raw, w.model))
    assert next(stream).WhichOneof("event") == "launched"
    upload(np.zeros(3, np.float32))
    raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=[memory]))
    (notify,) = [event.notify for event in stream]
    request = execute_request(raw, notify.prepared_model, [np.ones(3, np.float32)])
    result = raw.prepared_model.ExecuteSynchronously(request)
    np.testing.assert_array_equal(np.frombuffer(result.returned[0].inline, np.float32), [10, 10, 10])


def test_unknown_session_is_lost(raw: RawSession) -> None:
    lost, model = b"x" * 16, add_chain(1)
    for stream in (
        raw.device.PrepareModel(device_pb2.PrepareModelRequest(session=lost, model=model)),
        raw.device.PrepareModelWithConfig(device_pb2.PrepareModelWithConfigRequest(session=lost, model=model)),
        raw.device.PrepareModelFromCache(device_pb2.PrepareModelFromCacheRequest(session=lost)),
    ):
        events, error = read_events(stream)
        assert kinds(events) == ["notify"] and error is not None
        detail = error_detail(error)
        assert detail.kind == error_pb2.ERROR_KIND_SESSION_LOST
        assert detail.status == events[0].notify.status == enums_pb2.ERROR_STATUS_DEVICE_UNAVAILABLE
        assert detail.reason == events[0].notify.reason
