"""Driver-managed buffers over the contract: tokens of several devices, and launches that are refused."""

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

import nnhal
from nnhal.client.core.session import Transport
from nnhal.types import ErrorStatus, Model, OperandType, OperationType
from nnhal.v1 import buffer_pb2, buffer_pb2_grpc, burst_pb2, burst_pb2_grpc, device_pb2, prepared_model_pb2, types_pb2
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.preparation_events import read_events
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)

VALUE = np.array([1, 2], np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = Settings(listen=("127.0.0.1:0",), cache_bytes=0, backends=("CpuRef",), devices=("first", "second"))
    with Server(settings) as running:
        yield running


def relu() -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [2])
    b.output(b.add(OperationType.RELU, x, output=x.description))
    return b.build()


def test_tokens_are_unique_in_the_service(server: Server) -> None:
    with (
        nnhal.connect(server.addresses[0], device="first") as first,
        nnhal.connect(server.addresses[0], device="second") as second,
    ):
        models = [device.prepare(relu()).result() for device in (first, second)]
        buffers = [
            device.allocate(inputs=[(model, 0)])
            for device, model in zip((first, second), models, strict=True)
            for _ in range(3)
        ]
        assert len({buffer.token for buffer in buffers}) == len(buffers)
        buffers[3].write(VALUE)
        with pytest.raises(nnhal.HalError) as caught:
            models[0].execute([buffers[3]])
        assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQ-02")
        assert models[1].execute([buffers[3]])[0].tolist() == VALUE.tolist()


def two_relus() -> Model:
    """Return a model of two independent operations."""
    b = nnhal.ModelBuilder()
    for _ in range(2):
        x = b.input(OperandType.TENSOR_FLOAT32, [2])
        b.output(b.add(OperationType.RELU, x, output=x.description))
    return b.build()


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_buffer_that_is_used_for_two_outputs_is_uninitialized(server: Server, transport: Transport) -> None:
    with (
        nnhal.connect(server.addresses[0], transport=transport) as device,
        device.prepare(two_relus()).result() as model,
        device.allocate(outputs=[(model, 0), (model, 1)]) as buffer,
        model.burst() as burst,
    ):
        for execute in (model.execute, burst.execute):
            buffer.write(VALUE)
            with pytest.raises(nnhal.HalError) as caught:
                execute([VALUE, VALUE], outputs=[buffer, buffer])
            assert caught.value.rule == "V-TOKEN-03"
            with pytest.raises(nnhal.HalError, match="the buffer is uninitialized"):
                buffer.read()


class BufferedModel:
    """Prepared model with a buffer for its output."""

    def __init__(self, raw: RawSession) -> None:
        self.raw = raw
        self.buffers = buffer_pb2_grpc.BufferStub(raw.channel)
        events, _ = read_events(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
        self.prepared = events[1].notify.prepared_model
        request = device_pb2.AllocateRequest(session=raw.session, prepared_models=[self.prepared])
        request.output_roles.add(model_index=0, io_index=0, probability=1)
        self.allocated = raw.device.Allocate(request)

    def fill(self) -> None:
        source = types_pb2.Memory(inline=VALUE.tobytes())
        request = buffer_pb2.CopyFromRequest(session=self.raw.session, buffer=self.allocated.buffer, src=source)
        self.buffers.CopyFrom(request)

    def value(self) -> list[float] | None:
        """Return the value of the buffer; None if it is uninitialized."""
        try:
            copied = self.buffers.CopyTo(
                buffer_pb2.CopyToRequest(session=self.raw.session, buffer=self.allocated.buffer)
            )
        except grpc.RpcError as error:
            assert error_detail(error).status == ErrorStatus.GENERAL_FAILURE
            return None
        return list(np.frombuffer(copied.returned.inline, np.float32))

    def request(self) -> types_pb2.Request:
        """Return a valid request whose output is in the buffer."""
        request = execute_request(self.raw, self.prepared, [VALUE]).request
        request.pools[1].Clear()
        request.pools[1].token = self.allocated.token
        request.outputs[0].location.Clear()
        request.outputs[0].location.pool_index = 1
        return request

    def execute(self, request: types_pb2.Request, timeout_ns: int = -1) -> object:
        message = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=self.raw.session, prepared_model=self.prepared, request=request, loop_timeout_duration_ns=timeout_ns
        )
        return self.raw.prepared_model.ExecuteSynchronously(message)

    def execute_fenced(self, request: types_pb2.Request) -> object:
        message = prepared_model_pb2.ExecuteFencedRequest(
            session=self.raw.session, prepared_model=self.prepared, request=request
        )
        return self.raw.prepared_model.ExecuteFenced(message)

    def execute_burst(self, request: types_pb2.Request) -> object:
        model = prepared_model_pb2.PreparedModelRequest(session=self.raw.session, prepared_model=self.prepared)
        burst = self.raw.prepared_model.ConfigureExecutionBurst(model).burst
        message = burst_pb2.BurstExecuteRequest(
            session=self.raw.session, burst=burst, request=request, memory_identifier_tokens=[-1] * len(request.pools)
        )
        return burst_pb2_grpc.BurstStub(self.raw.channel).ExecuteSynchronously(message)


def without_inputs(request: types_pb2.Request) -> types_pb2.Request:
    del request.inputs[:]
    return request


def test_refused_launch_leaves_the_output_buffer_uninitialized(server: Server) -> None:
    with open_raw_session(server.addresses[0]) as raw:
        model = BufferedModel(raw)
        assert model.value() is None
        model.execute(model.request())
        assert model.value() == [2, 3]
        calls: list[Callable[[], object]] = [
            lambda: model.execute(without_inputs(model.request())),
            lambda: model.execute(model.request(), timeout_ns=-2),
            lambda: model.execute_fenced(without_inputs(model.request())),
            lambda: model.execute_burst(without_inputs(model.request())),
        ]
        for call in calls:
            model.fill()
            assert model.value() == VALUE.tolist()
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert error_detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT
            assert model.value() is None
