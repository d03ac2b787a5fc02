"""Requests and answers whose form is known: the same results as the first ones, and the same refusals."""

from collections.abc import Iterator
from typing import TypeAlias

import grpc
import numpy as np
import pytest

import nnhal
from nnhal.client import PreparedModel
from nnhal.enums import ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import burst_pb2, burst_pb2_grpc, device_pb2, prepared_model_pb2
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import Service
from tests.end_to_end.raw import Raw, chain, detail, execute_request, prepare_request, raw_session

X = tensor(T.TENSOR_FLOAT32, (0, 3))
ADD = model_of(Op.ADD, [(X, np.zeros((1, 3))), (X, np.zeros((1, 3))), int32(0)], [X], constants=False)


Unary: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
Stream: TypeAlias = "grpc.StreamStreamMultiCallable[bytes, bytes]"


@pytest.fixture
def prepared(service: Service) -> Iterator[PreparedModel]:
    with nnhal.connect(service.target, transport="grpc") as device, device.prepare(ADD).result(30) as made:
        yield made


def test_values_and_shapes_that_change(prepared: PreparedModel) -> None:
    random = np.random.default_rng(3)
    with prepared.burst() as burst:
        for number in range(40):
            rows = number % 3 + 1
            a, b = random.standard_normal((2, rows, 3)).astype(np.float32)
            for outputs in (prepared.execute([a, b]), burst.execute([a, b])):
                np.testing.assert_array_equal(outputs[0], a + b)
                outputs[0][:] = 0  # one's own


def test_measured_with_deadlines_and_plain_ones_in_turn(prepared: PreparedModel) -> None:
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


def test_what_is_late_is_late_each_time(prepared: PreparedModel) -> None:
    a, b = np.ones((2, 4, 3), np.float32)
    with prepared.burst() as burst:
        for _ in range(5):
            for execute in (prepared.execute, burst.execute):
                with pytest.raises(nnhal.HalError) as caught:
                    execute([a, b], deadline=0)
                assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
                np.testing.assert_array_equal(execute([a, b])[0], a + b)


def made(raw: Raw) -> bytes:
    events: list[device_pb2.PrepareModelEvent] = list(raw.device.PrepareModel(prepare_request(raw, chain(1))))
    return events[-1].notify.prepared_model


def test_another_session_cannot_use_what_is_known(service: Service) -> None:
    with raw_session(service.target) as owner, raw_session(service.target) as thief:
        request = execute_request(owner, made(owner), [np.ones(2, np.float32)])
        for _ in range(4):
            owner.prepared_model.ExecuteSynchronously(request)
        request.session = thief.session
        for _ in range(4):
            with pytest.raises(grpc.RpcError) as caught:
                thief.prepared_model.ExecuteSynchronously(request)
            assert detail(caught.value).reason == "no such object in this session"


def test_bytes_that_are_no_request(service: Service) -> None:
    with raw_session(service.target) as raw:
        unary: Unary = raw.channel.unary_unary("/nnhal.v1.PreparedModel/ExecuteSynchronously")
        stream: Stream = raw.channel.stream_stream("/nnhal.v1.Burst/Stream")
        for number in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                _ = unary(b"\xff\xff") if number else next(stream(iter([b"\xff\xff"])))
            assert detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT
            assert "cannot be decoded" in detail(caught.value).reason


def test_one_form_among_others_on_a_stream(service: Service) -> None:
    """Unnamed calls, kept memories and releases between executions of a known form."""
    with raw_session(service.target) as raw:
        whose = prepared_model_pb2.PreparedModelRequest(session=raw.session, prepared_model=made(raw))
        burst = raw.prepared_model.ConfigureExecutionBurst(whose).burst

        def requests() -> Iterator[burst_pb2.BurstStreamRequest]:
            for value in range(20):
                request = execute_request(raw, b"", [np.full(2, value, np.float32)]).request
                call = burst_pb2.BurstExecuteRequest(request=request, memory_identifier_tokens=[-1, -1])
                if value % 4 != 3:
                    call.session, call.burst = raw.session, burst
                if value % 5 == 4:
                    call.memory_identifier_tokens[0] = value
                yield burst_pb2.BurstStreamRequest(execute=call)

        answers = burst_pb2_grpc.BurstStub(raw.channel).Stream(requests())
        found = [np.frombuffer(answer.result.returned[0].inline, np.float32).tolist() for answer in answers]
        assert found == [[value + 1.0] * 2 for value in range(20)]
