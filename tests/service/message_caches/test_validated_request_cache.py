"""Validation results: limits and handles are checked each time, the rest once, and values are never mixed up."""

from typing import cast

import numpy as np
import pytest

from nnhal import message_template
from nnhal.errors import HalError
from nnhal.types import BufferToken, ExecutionConfig, Memory
from nnhal.v1 import types_pb2
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.message_caches.validated_request_cache import ValidatedRequestCache
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.session import Session
from tests.service.message_caches.validating_model import OPERAND, PLAIN, ValidatingModel, request_message


def validate(
    cache: ValidatedRequestCache, model: ValidatingModel, request: types_pb2.Request, config: ExecutionConfig = PLAIN
) -> ValidRequest:
    return cache.validate(Session("s", ANONYMOUS), cast(PreparedModel, model), request, config)


def test_request_with_other_values_is_not_validated_again() -> None:
    cache, model = ValidatedRequestCache(Limits()), ValidatingModel()
    for value in (1.0, 2.0, 3.0):
        bound = BoundRequest(validate(cache, model, request_message(value)), [OPERAND])
        assert bound.inputs[0] is not None
        np.testing.assert_array_equal(bound.inputs[0], [value, value])
    assert model.validations == 1


def test_other_configuration_or_length_is_validated() -> None:
    cache, model = ValidatedRequestCache(Limits()), ValidatingModel()
    validate(cache, model, request_message(1))
    validate(cache, model, request_message(1), ExecutionConfig(loop_timeout_duration_ns=5))
    validate(cache, model, request_message(1, first=Memory.of(np.zeros(3, np.float32))))
    validate(cache, ValidatingModel(), request_message(1))
    assert model.validations == 3, "the configuration and the number of bytes are part of the cache key"


def test_invalid_requests_are_rejected_each_time() -> None:
    cache, model = ValidatedRequestCache(Limits()), ValidatingModel()
    for _ in range(2):
        with pytest.raises(HalError, match="too long or too short"):
            validate(cache, model, request_message(1, length=12))
    assert model.validations == 2


def test_limits_are_checked() -> None:
    cache = ValidatedRequestCache(Limits({"inline_bytes": 7}))
    for _ in range(2):
        with pytest.raises(HalError, match="inline_bytes"):
            validate(cache, ValidatingModel(), request_message(1))


def test_handles_and_tokens_are_looked_up_each_time() -> None:
    cache, model, session = ValidatedRequestCache(Limits()), ValidatingModel(), Session("s", ANONYMOUS)
    handle = session.add(MemoryObject(np.zeros(8, np.uint8)))
    for _ in range(2):
        mapped = request_message(1)
        mapped.pools[0].pool.mapped.memory = handle
        cache.validate(session, cast(PreparedModel, model), mapped, PLAIN)
        validate(cache, model, request_message(1, first=BufferToken(1)))
    assert model.validations == 4
    session.release([handle])
    released = request_message(1)
    released.pools[0].pool.mapped.memory = handle
    with pytest.raises(HalError, match="no such object"):
        cache.validate(session, cast(PreparedModel, model), released, PLAIN)


def test_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_template, "MAX_ENTRIES", 3)
    cache, model = ValidatedRequestCache(Limits()), ValidatingModel()
    for timeout in range(10):
        validate(cache, model, request_message(1), ExecutionConfig(loop_timeout_duration_ns=timeout))
    (templates,) = cache._models.values()
    assert len(templates) <= 3
    del templates, model
    assert not cache._models, "templates are freed with their model"
