"""Response templates: the encoding is that of protobuf, and the number of templates is bounded."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from nnhal import message_template, wire
from nnhal.types import UNMEASURED, Bytes, ExecutionResult, OutputShape, Timing
from nnhal.v1 import types_pb2
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.message_caches.response_template_cache import ResponseTemplateCache
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session
from tests.service.message_caches.validating_model import ValidatingModel

SESSION = Session("s", ANONYMOUS)
MODEL = cast(PreparedModel, ValidatingModel())


def new_cache(limits: Limits) -> ResponseTemplateCache[types_pb2.ExecutionResult]:
    return ResponseTemplateCache(types_pb2.ExecutionResult, lambda response: response, limits, MemoryQuota(limits))


def result(*outputs: Bytes | None, timing: Timing = UNMEASURED, fits: bool = True) -> ExecutionResult:
    shapes = tuple(OutputShape(() if data is None else (data.size,), fits) for data in outputs)
    return ExecutionResult(fits, shapes, timing, outputs if fits else ())


def numbers(value: int, size: int) -> Bytes:
    return np.full(size, value, np.uint8)


@pytest.mark.parametrize(
    "make_result",
    [
        lambda value: result(numbers(value, 4)),
        lambda value: result(numbers(value, 4), numbers(value + 1, 300)),
        lambda value: result(numbers(value, 4), timing=Timing(value, 2)),
        lambda value: result(numbers(value, 4), numbers(value, 0)),
        lambda value: result(numbers(value, 4), None),
        lambda value: result(numbers(value, 4), fits=False),
        lambda value: ExecutionResult(True),
    ],
)
def test_response_is_encoded_as_protobuf_encodes_it(make_result: Callable[[int], ExecutionResult]) -> None:
    cache, limits = new_cache(Limits()), Limits()
    for value in range(4):
        expected = make_result(value)
        writer = OutputWriter(SESSION, limits["inline_bytes"], MemoryQuota(limits))
        assert cache.encode(expected, MODEL, SESSION) == wire.result_message(expected, writer).SerializeToString()


def test_large_outputs_become_memory_objects_each_time() -> None:
    cache = new_cache(Limits({"inline_bytes": 4}))
    handles = set()
    for value in range(3):
        response = types_pb2.ExecutionResult.FromString(cache.encode(result(numbers(value, 5)), MODEL, SESSION))
        handles.add(response.returned[0].memory)
        assert SESSION.get(response.returned[0].memory, MemoryObject).buffer[0] == value
    assert len(handles) == 3
    SESSION.release(handles)


def test_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_template, "MAX_ENTRIES", 3)
    cache, model = new_cache(Limits()), cast(PreparedModel, ValidatingModel())
    for size in range(1, 10):
        cache.encode(result(numbers(1, size)), model, SESSION)
    assert 0 < len(cache._models[model]) <= 3
    del model
    assert not cache._models, "templates are freed with their model"
