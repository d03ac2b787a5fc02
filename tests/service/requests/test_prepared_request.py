"""PreparedModel.Define and Run, and runs on a stream of the Burst service, as a client in any language sends them."""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorStatus
from nnhal.v1 import (
    burst_pb2,
    burst_pb2_grpc,
    device_pb2,
    error_pb2,
    memory_pb2,
    prepared_model_pb2,
    session_pb2,
    types_pb2,
)
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.raw_client import RawSession, add_chain, error_detail, open_raw_session, prepare_request

INPUT = np.array([1, 2], np.float32).tobytes()
OUTPUT = np.array([2, 3], np.float32).tobytes()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = Settings(listen=("127.0.0.1:0",), cache_bytes=0, backends=("CpuRef",), limits={"defined_requests": 3})
    with Server(settings) as running:
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[RawSession]:
    with open_raw_session(server.addresses[0]) as session:
        yield session


def prepare(raw: RawSession) -> bytes:
    """Prepare a model that adds one to two numbers, and return its handle."""
    events: list[device_pb2.PrepareModelEvent] = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
    return events[-1].notify.prepared_model


def request(size: int = 8) -> types_pb2.Request:
    """Return a request whose input comes with each run, and whose output is returned."""
    message = types_pb2.Request()
    message.inputs.add(location=types_pb2.DataLocation(length=8))
    message.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    message.pools.add(value=types_pb2.ValuePool(size=size))
    message.pools.add(returned=types_pb2.ReturnedPool())
    return message


def define(
    raw: RawSession, target: bytes, message: types_pb2.Request | None = None, **config: Any
) -> prepared_model_pb2.DefineResponse:
    arguments = prepared_model_pb2.DefineRequest(
        session=raw.session,
        target=target,
        request=message or request(),
        config=types_pb2.ExecutionConfig(**config),
    )
    response: prepared_model_pb2.DefineResponse = raw.prepared_model.Define(arguments)
    return response


def run_request(raw: RawSession, definition: bytes, *values: bytes, **fields: Any) -> prepared_model_pb2.RunRequest:
    return prepared_model_pb2.RunRequest(session=raw.session, definition=definition, values=values, **fields)


def run(raw: RawSession, definition: bytes, *values: bytes, **fields: Any) -> prepared_model_pb2.RunResponse:
    response: prepared_model_pb2.RunResponse = raw.prepared_model.Run(run_request(raw, definition, *values, **fields))
    return response


def error_of_run(raw: RawSession, definition: bytes, *values: bytes, **fields: Any) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        run(raw, definition, *values, **fields)
    return error_detail(caught.value)


def error_of_definition(
    raw: RawSession, target: bytes, message: types_pb2.Request, **config: Any
) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        define(raw, target, message, **config)
    return error_detail(caught.value)


def test_values(raw: RawSession) -> None:
    defined = define(raw, prepare(raw))
    assert [list(shape.dimensions) for shape in defined.output_shapes] == [[2]]
    for number in range(3):
        response = run(raw, defined.definition, np.full(2, number, np.float32).tobytes())
        assert not response.HasField("result")
        assert list(response.values) == [np.full(2, number + 1, np.float32).tobytes()]


def test_measured_run_has_a_result(raw: RawSession) -> None:
    defined = define(raw, prepare(raw), measure_timing=True, profile=True)
    response = run(raw, defined.definition, INPUT)
    assert not response.values
    assert response.result.timing.time_on_device_ns > 0
    assert [output.inline for output in response.result.returned] == [OUTPUT]
    assert "encode" in [span.name for span in response.result.spans]


def test_output_in_memory_of_the_client(raw: RawSession) -> None:
    memory = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=8)).memory
    message = request()
    message.pools[1].pool.mapped.memory = memory
    message.outputs[0].location.length = 8
    defined = define(raw, prepare(raw), message)
    response = run(raw, defined.definition, INPUT)
    assert not response.values and not response.HasField("result")
    read = memory_pb2.ReadRequest(session=raw.session, memory=memory, length=8)
    assert b"".join(chunk.data for chunk in raw.memory.Read(read)) == OUTPUT


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((), "the run has 0 values; its definition has 1"),
        ((INPUT, INPUT), "the run has 2 values; its definition has 1"),
        ((INPUT[1:],), "the value of pool 0 has 7 bytes; its definition has 8"),
        ((b"",), "the value of pool 0 has 0 bytes; its definition has 8"),
    ],
)
def test_wrong_values(raw: RawSession, values: tuple[bytes, ...], reason: str) -> None:
    definition = define(raw, prepare(raw)).definition
    error = error_of_run(raw, definition, *values)
    assert (error.status, error.reason) == (ErrorStatus.INVALID_ARGUMENT, reason)
    assert list(run(raw, definition, INPUT).values) == [OUTPUT]


def test_invalid_definitions(raw: RawSession) -> None:
    model = prepare(raw)
    inline = request()
    inline.pools[0].pool.inline = INPUT
    error = error_of_definition(raw, model, inline)
    assert "keeps no inline pools" in error.reason
    assert "at least 0" in error_of_definition(raw, model, request(-1)).reason
    assert error_of_definition(raw, model, request(4)).status == ErrorStatus.INVALID_ARGUMENT
    written = request()
    written.outputs[0].location.CopyFrom(types_pb2.DataLocation(length=8))
    assert "read-only" in error_of_definition(raw, model, written).reason
    assert error_of_definition(raw, model, request(2**40)).limit == "inline_bytes"
    assert error_of_definition(raw, model, request(), loop_timeout_duration_ns=-2).status
    assert error_of_definition(raw, b"none", request()).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE


def test_value_pool_outside_of_a_definition(raw: RawSession) -> None:
    message = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=raw.session, prepared_model=prepare(raw), request=request()
    )
    with pytest.raises(grpc.RpcError) as caught:
        raw.prepared_model.ExecuteSynchronously(message)
    assert error_detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT


def test_number_of_definitions_is_limited(raw: RawSession) -> None:
    model = prepare(raw)
    definitions = [define(raw, model).definition for _ in range(3)]
    assert error_of_definition(raw, model, request()).limit == "defined_requests"
    raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=definitions[:1]))
    define(raw, model)
    assert error_of_run(raw, definitions[0], INPUT).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE


def test_definition_does_not_keep_its_model(raw: RawSession) -> None:
    model = prepare(raw)
    definition = define(raw, model).definition
    raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=[model]))
    assert error_of_run(raw, definition, INPUT).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE


def test_definition_of_another_session(server: Server, raw: RawSession) -> None:
    definition = define(raw, prepare(raw)).definition
    with open_raw_session(server.addresses[0]) as thief:
        assert error_of_run(thief, definition, INPUT).kind == error_pb2.ERROR_KIND_UNKNOWN_HANDLE


def test_deadlines(raw: RawSession) -> None:
    definition = define(raw, prepare(raw)).definition
    assert list(run(raw, definition, INPUT, deadline_ns=-1).values) == [OUTPUT]
    assert list(run(raw, definition, INPUT, deadline_ns=60 * 10**9).values) == [OUTPUT]
    missed = error_of_run(raw, definition, INPUT, deadline_ns=0)
    assert missed.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert error_of_run(raw, definition, INPUT, deadline_ns=-2).status == ErrorStatus.INVALID_ARGUMENT


def test_runs_on_a_stream(raw: RawSession) -> None:
    """Runs for definitions of a model and of a burst, with and without a session; errors do not end the stream."""
    model = prepare(raw)
    configure = prepared_model_pb2.PreparedModelRequest(session=raw.session, prepared_model=model)
    burst = raw.prepared_model.ConfigureExecutionBurst(configure).burst
    definitions = [define(raw, target).definition for target in (model, burst)]
    runs = [run_request(raw, definition, INPUT) for definition in definitions]
    runs += [prepared_model_pb2.RunRequest(definition=definition, values=[INPUT]) for definition in definitions]
    runs += [run_request(raw, definitions[0]), run_request(raw, b"none", INPUT), runs[0]]
    calls = iter([burst_pb2.BurstStreamRequest(run=each) for each in runs])
    responses = list(burst_pb2_grpc.BurstStub(raw.channel).Stream(calls))
    assert [response.WhichOneof("answer") for response in responses] == ["ran"] * 4 + ["error"] * 2 + ["ran"]
    assert all(list(response.ran.values) == [OUTPUT] for response in responses if response.HasField("ran"))


def test_stream_without_a_session(raw: RawSession) -> None:
    calls = iter([burst_pb2.BurstStreamRequest(run=prepared_model_pb2.RunRequest(definition=b"d"))])
    (response,) = burst_pb2_grpc.BurstStub(raw.channel).Stream(calls)
    assert "must name its session" in response.error.reason
