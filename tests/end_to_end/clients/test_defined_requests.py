"""Repeated requests, which the client defines: results and errors equal those of the first request.

Other tests send such requests without a client.
"""

from collections.abc import Iterator
from typing import TypeAlias

import grpc
import numpy as np
import pytest

import nnhal
from nnhal.client import PreparedModel
from nnhal.types import ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import burst_pb2, burst_pb2_grpc, device_pb2, prepared_model_pb2
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service

X = tensor(T.TENSOR_FLOAT32, (0, 3))
ADD = model_of(Op.ADD, [(X, np.zeros((1, 3))), (X, np.zeros((1, 3))), int32(0)], [X], constants=False)


Unary: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
Stream: TypeAlias = "grpc.StreamStreamMultiCallable[bytes, bytes]"


@pytest.fixture
def prepared(service: Service) -> Iterator[PreparedModel]:
    with nnhal.connect(service.target, transport="grpc") as device, device.prepare(ADD).result(30) as model:
        yield model


def test_service_that_cannot_define_requests(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older service refuses the call. The client sends whole requests then."""
    tried = []

    def define(self: object, *_: object, **__: object) -> None:
        tried.append(self)
        raise nnhal.HalError(ErrorStatus.GENERAL_FAILURE, "the service does not offer this call")

    with nnhal.connect(service.target, transport="grpc") as device, device.prepare(ADD).result(30) as model:
        connection = model._remote.connection
        monkeypatch.setattr(connection.prepared_model, "Define", define)
        a, b = np.ones((2, 4, 3), np.float32)
        for value in range(5):
            a[:] = value
            np.testing.assert_array_equal(model.execute([a, b])[0], a + b)
        assert len(tried) == 1


def test_closed_model_cannot_be_executed(prepared: PreparedModel) -> None:
    a, b = np.ones((2, 4, 3), np.float32)
    for _ in range(3):
        prepared.execute([a, b])
    prepared.close()
    with pytest.raises(nnhal.HalError, match="no such object") as caught:
        prepared.execute([a, b])
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_more_forms_than_definitions(prepared: PreparedModel) -> None:
    for rows in [*range(1, 40), *range(1, 40)]:
        a, b = np.full((2, rows, 3), rows, np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(prepared.execute([a, b])[0], a + b)


def test_changing_values_and_shapes(prepared: PreparedModel) -> None:
    random = np.random.default_rng(3)
    with prepared.burst() as burst:
        for number in range(40):
            rows = number % 3 + 1
            a, b = random.standard_normal((2, rows, 3)).astype(np.float32)
            for outputs in (prepared.execute([a, b]), burst.execute([a, b])):
                np.testing.assert_array_equal(outputs[0], a + b)
                outputs[0][:] = 0  # the caller owns the outputs


def test_alternating_timing_and_deadlines(prepared: PreparedModel) -> None:
    a, b = np.ones((2, 4, 3), np.float32)
    with prepared.burst() as burst:
        for number in range(12):
            for execute in (prepared.execute, burst.execute):
                a[:] = number
                measured = execute(
                    [a, b], measure_timing=number % 2 == 0, deadline=(None, 60.0, 50 + number)[number % 3]
                )
                np.testing.assert_array_equal(measured[0], a + b)
                assert (measured.timing.time_on_device_ns > 0) == (number % 2 == 0)


def test_missed_deadline_is_reported_each_time(prepared: PreparedModel) -> None:
    a, b = np.ones((2, 4, 3), np.float32)
    with prepared.burst() as burst:
        for _ in range(5):
            for execute in (prepared.execute, burst.execute):
                with pytest.raises(nnhal.HalError) as caught:
                    execute([a, b], deadline=0)
                assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
                np.testing.assert_array_equal(execute([a, b])[0], a + b)


def prepare_handle(raw: RawSession) -> bytes:
    """Prepare a model and return its handle."""
    events: list[device_pb2.PrepareModelEvent] = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
    return events[-1].notify.prepared_model


def test_bytes_that_do_not_parse(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        unary: Unary = raw.channel.unary_unary("/nnhal.v1.PreparedModel/Run")
        stream: Stream = raw.channel.stream_stream("/nnhal.v1.Burst/Stream")
        for number in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                _ = unary(b"\xff\xff") if number else next(stream(iter([b"\xff\xff"])))
            assert error_detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT
            assert "cannot be decoded" in error_detail(caught.value).reason


def test_stream_that_alternates_forms_of_requests(service: Service) -> None:
    """Requests without a session and with cached memories."""
    with open_raw_session(service.target) as raw:
        handle = prepare_handle(raw)
        configure = prepared_model_pb2.PreparedModelRequest(session=raw.session, prepared_model=handle)
        burst = raw.prepared_model.ConfigureExecutionBurst(configure).burst

        def requests() -> Iterator[burst_pb2.BurstStreamRequest]:
            for value in range(20):
                request = execute_request(raw, b"", [np.full(2, value, np.float32)]).request
                call = burst_pb2.BurstExecuteRequest(request=request, memory_identifier_tokens=[-1, -1])
                if value % 4 != 3:
                    call.session, call.burst = raw.session, burst
                if value % 5 == 4:
                    call.memory_identifier_tokens[0] = value
                yield burst_pb2.BurstStreamRequest(execute=call)

        responses = burst_pb2_grpc.BurstStub(raw.channel).Stream(requests())
        results = [np.frombuffer(response.result.returned[0].inline, np.float32).tolist() for response in responses]
        assert results == [[value + 1.0] * 2 for value in range(20)]
