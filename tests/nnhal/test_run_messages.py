"""RunRequest and RunResponse, written and read without protobuf's parser, against that parser."""

from collections.abc import Sequence

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.run_messages import (
    RunCall,
    RunRequestEncoder,
    encode_values,
    read_run,
    read_stream_run,
    read_values,
    run_call,
)
from nnhal.types import Bytes
from nnhal.v1 import burst_pb2, prepared_model_pb2

VALUES = st.lists(st.binary(max_size=300), max_size=4)
DEADLINES = st.integers(-(2**63), 2**63 - 1)
MESSAGES = st.builds(
    prepared_model_pb2.RunRequest,
    session=st.binary(max_size=20),
    definition=st.binary(max_size=20),
    values=VALUES,
    deadline_ns=st.none() | DEADLINES,
)


def arrays(values: Sequence[bytes]) -> list[Bytes]:
    return [np.frombuffer(value, np.uint8) for value in values]


def contents(call: RunCall) -> tuple[object, ...]:
    return call.session, call.definition, [value.tobytes() for value in call.values], call.deadline_ns


@given(VALUES, st.just(-1) | DEADLINES, st.booleans())
def test_encoded_run(values: list[bytes], deadline_ns: int, stream: bool) -> None:
    encoded = RunRequestEncoder(b"s" * 16, b"d" * 16, map(len, values)).encode(
        arrays(values), deadline_ns, stream=stream
    )
    if stream:
        run = burst_pb2.BurstStreamRequest.FromString(encoded).run
    else:
        run = prepared_model_pb2.RunRequest.FromString(encoded)
    assert (run.session, run.definition, list(run.values)) == (b"s" * 16, b"d" * 16, values)
    assert run.HasField("deadline_ns") == (deadline_ns != -1)
    assert not run.HasField("deadline_ns") or run.deadline_ns == deadline_ns


@given(MESSAGES)
def test_read_run(message: prepared_model_pb2.RunRequest) -> None:
    assert contents(read_run(message.SerializeToString())) == contents(run_call(message))
    on_stream = read_stream_run(burst_pb2.BurstStreamRequest(run=message).SerializeToString())
    assert on_stream is not None and contents(on_stream) == contents(run_call(message))


@given(MESSAGES, st.data())
def test_mutated_run(message: prepared_model_pb2.RunRequest, data: st.DataObject) -> None:
    """The reader accepts the same messages as protobuf's parser, and reads the same from them."""
    encoded = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(encoded)))
        encoded[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        expected = run_call(prepared_model_pb2.RunRequest.FromString(bytes(encoded)))
    except DecodeError:
        with pytest.raises(HalError, match="cannot be decoded"):
            read_run(bytes(encoded))
    else:
        assert contents(read_run(bytes(encoded))) == contents(expected)


@pytest.mark.parametrize(
    "call",
    [
        burst_pb2.BurstStreamRequest(),
        burst_pb2.BurstStreamRequest(execute=burst_pb2.BurstExecuteRequest(session=b"s")),
        burst_pb2.BurstStreamRequest(release=burst_pb2.ReleaseMemoryResourceRequest(session=b"s")),
    ],
)
def test_other_calls_of_a_stream(call: burst_pb2.BurstStreamRequest) -> None:
    assert read_stream_run(call.SerializeToString()) is None


@given(VALUES, st.booleans())
def test_values_of_a_response(values: list[bytes], stream: bool) -> None:
    encoded = encode_values(arrays(values), stream=stream)
    response = prepared_model_pb2.RunResponse(values=values)
    expected = burst_pb2.BurstStreamResponse(ran=response) if stream else response
    assert encoded == expected.SerializeToString()
    spans = read_values(encoded, stream=stream)
    assert spans is not None and [encoded[start:end] for start, end in spans] == values


@given(st.binary(max_size=60), st.booleans())
def test_other_responses(encoded: bytes, stream: bool) -> None:
    spans = read_values(encoded, stream=stream)
    if spans is not None:
        response = (
            burst_pb2.BurstStreamResponse.FromString(encoded).ran
            if stream
            else prepared_model_pb2.RunResponse.FromString(encoded)
        )
        assert not response.HasField("result")
        assert [encoded[start:end] for start, end in spans] == list(response.values)


def test_response_with_a_result() -> None:
    response = prepared_model_pb2.RunResponse()
    response.result.output_sufficient_size = True
    assert read_values(response.SerializeToString()) is None
    assert read_values(burst_pb2.BurstStreamResponse(ran=response).SerializeToString(), stream=True) is None
