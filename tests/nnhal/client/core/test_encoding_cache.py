"""Caches of encoded requests and responses."""

import numpy as np
import pytest

from nnhal import message_template
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.encoding_cache import RequestEncodingCache, ResponseDecodingCache
from nnhal.message_template import inline_memories
from nnhal.types import UNMEASURED, AnyArray, Operand, OperandType, Timing
from nnhal.v1 import prepared_model_pb2, types_pb2
from tests.nnhal.messages import request

IO = ModelIO((), (Operand(OperandType.TENSOR_FLOAT32, (0, 2)), Operand(OperandType.TENSOR_BOOL8, (3,))), (), ("a", "b"))


def call(*arrays: AnyArray | None) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    values = [array.tobytes() for array in arrays if array is not None]
    return prepared_model_pb2.ExecuteSynchronouslyRequest(session=b"s" * 16, request=request(*values))


def response(rows: int, value: float, timing: Timing = UNMEASURED) -> types_pb2.ExecutionResult:
    values = [array.tobytes() for array in outputs(rows, value)]
    return types_pb2.ExecutionResult(
        output_sufficient_size=True,
        output_shapes=[types_pb2.OutputShape(dimensions=shape, is_sufficient=True) for shape in ((rows, 2), (3,))],
        timing=types_pb2.Timing(time_on_device_ns=timing.time_on_device_ns, time_in_driver_ns=timing.time_in_driver_ns),
        returned=[types_pb2.ReturnedOutput(inline=output) for output in values],
    )


def outputs(rows: int, value: float, timing: Timing = UNMEASURED) -> Outputs:
    return Outputs.of([np.full((rows, 2), value, np.float32), np.array([True, value > 2, False])], ("a", "b"), timing)


def test_requests_are_cached_by_options_and_shapes() -> None:
    cache = RequestEncodingCache()
    first = [np.ones((3, 5), np.float32), None, np.ones(2, np.int32)]
    assert cache.encode("options", first) is None
    cache.add("options", first, call(*first), lambda message: inline_memories(message.request))
    second = [np.full((3, 5), 7, np.float32), None, np.full(2, 9, np.int32)]
    assert cache.encode("options", second) == call(*second).SerializeToString()
    assert cache.encode("other options", second) is None
    assert cache.encode("options", [np.ones((5, 3), np.float32), *second[1:]]) is None
    assert cache.encode("options", [second[0], second[2], None]) is None


def test_responses_that_differ_in_values_are_decoded_from_the_cache() -> None:
    cache = ResponseDecodingCache(IO)
    first = response(2, 1)
    assert cache.decode(first.SerializeToString()) is None
    cache.add(first.SerializeToString(), first, lambda message: message.returned, outputs(2, 1))
    decoded = cache.decode(response(2, 5).SerializeToString())
    assert decoded is not None
    for actual, expected in zip(decoded, outputs(2, 5), strict=True):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype
        assert actual.flags.writeable
        assert actual.flags.owndata
    assert decoded["b"] is decoded[1]
    assert decoded.timing == UNMEASURED
    assert cache.decode(response(3, 5).SerializeToString()) is None
    assert cache.decode(response(2, 5, Timing(1, 2)).SerializeToString()) is None


def test_measured_responses_are_not_cached() -> None:
    cache = ResponseDecodingCache(IO)
    measured = response(2, 1, Timing(3, 4))
    cache.add(measured.SerializeToString(), measured, lambda message: message.returned, outputs(2, 1, Timing(3, 4)))
    assert cache.decode(measured.SerializeToString()) is None


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_template, "MAX_ENTRIES", 3)
    responses, requests = ResponseDecodingCache(IO), RequestEncodingCache()
    for rows in range(1, 10):
        message, array = response(rows, 1), np.ones((rows, 2), np.float32)
        responses.add(message.SerializeToString(), message, lambda message: message.returned, outputs(rows, 1))
        requests.add("options", [array], call(array), lambda message: inline_memories(message.request))
    assert len(responses._entries) <= 3
    assert len(requests._templates) <= 3
