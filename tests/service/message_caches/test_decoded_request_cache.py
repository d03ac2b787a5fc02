"""Decoded messages: on a cache hit, values are never mixed up, and messages decode as protobuf decodes them."""

import gc
import weakref
from typing import cast

import numpy as np
import pytest

from nnhal import message_template
from nnhal.errors import HalError
from nnhal.types import AnyArray, BufferToken
from nnhal.v1 import prepared_model_pb2
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.message_caches import decoded_request_cache
from nnhal_service.message_caches.decoded_request_cache import DecodedRequestCache
from nnhal_service.message_caches.validated_request_cache import ValidatedRequestCache
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.session import Session
from tests.service.message_caches.validating_model import OPERAND, PLAIN, ValidatingModel, request_message

Call = prepared_model_pb2.ExecuteSynchronouslyRequest
Cache = DecodedRequestCache[Call, bytes]
SESSION = Session("s", ANONYMOUS)


def new_cache(limits: Limits | None = None) -> Cache:
    return DecodedRequestCache(
        ValidatedRequestCache(limits or Limits()), Call, lambda call: call.request, lambda call: call.prepared_model
    )


def encoded(value: float, handle: bytes = b"h" * 16, deadline_ns: int | None = None, length: int = 8) -> bytes:
    call = Call(
        session=b"s" * 16, prepared_model=handle, request=request_message(value, length), deadline_ns=deadline_ns
    )
    return call.SerializeToString()


def validate(cache: Cache, model: ValidatingModel, raw: bytes) -> ValidRequest:
    return cache.validate(SESSION, cast(PreparedModel, model), cache.decode(raw), PLAIN)


def input_of(request: ValidRequest) -> AnyArray:
    array = BoundRequest(request, [OPERAND]).inputs[0]
    assert array is not None
    return array


def test_cached_message_is_not_decoded_and_has_its_own_values() -> None:
    cache, model = new_cache(), ValidatingModel()
    for number in range(5):
        received = cache.decode(encoded(number))
        assert (received.message is None) == (number >= 2), "the third message is a cache hit"
        assert received.call == b"h" * 16
        np.testing.assert_array_equal(input_of(validate(cache, model, encoded(number))), [number, number])
    assert model.validations == 1


def test_message_that_differs_elsewhere_is_decoded() -> None:
    cache, model = new_cache(), ValidatingModel()
    for _ in range(3):
        validate(cache, model, encoded(1))
    assert cache.decode(encoded(1)).cached is not None
    assert cache.decode(encoded(1, handle=b"i" * 16)).cached is None
    assert cache.decode(encoded(1, deadline_ns=5)).cached is None
    assert cache.decode(encoded(1, length=7)).cached is None
    for _ in range(3):
        validate(cache, model, encoded(1, deadline_ns=10**9))
    assert cache.decode(encoded(1, deadline_ns=10**9)).cached is not None
    assert cache.decode(encoded(1, deadline_ns=10**9 + 1)).cached is None, "only the end differs"


def test_messages_with_different_deadlines_are_not_cached() -> None:
    cache, model = new_cache(), ValidatingModel()
    for number in range(10):
        validate(cache, model, encoded(1, deadline_ns=10**9 + number))
    assert not cache._cached
    for _ in range(3):
        validate(cache, model, encoded(1, deadline_ns=10**9))
    assert cache._cached


def test_handles_and_tokens_are_looked_up_each_time() -> None:
    cache, model = new_cache(), ValidatingModel()
    handle = SESSION.add(MemoryObject(np.zeros(8, np.uint8)))
    mapped = Call(session=b"s" * 16, request=request_message(1))
    mapped.request.pools[0].pool.mapped.memory = handle
    both = Call(session=b"s" * 16, request=request_message(1))
    both.request.pools.add().CopyFrom(mapped.request.pools[0])
    token = Call(session=b"s" * 16, request=request_message(1, first=BufferToken(1)))
    for _ in range(4):
        validate(cache, model, mapped.SerializeToString())
        validate(cache, model, token.SerializeToString())
        validate(cache, model, both.SerializeToString())
    assert not cache._cached
    SESSION.release([handle])
    with pytest.raises(HalError, match="no such object"):
        validate(cache, model, mapped.SerializeToString())


def test_invalid_messages_are_rejected_each_time() -> None:
    cache, model = new_cache(), ValidatingModel()
    for _ in range(4):
        with pytest.raises(HalError, match="too long or too short"):
            validate(cache, model, encoded(1, length=12))
    small = new_cache(Limits({"inline_bytes": 7}))
    for _ in range(4):
        with pytest.raises(HalError, match="inline_bytes"):
            validate(small, model, encoded(1))


def test_other_field_order_is_decoded_and_not_cached() -> None:
    cache, model = new_cache(), ValidatingModel()
    odd = Call(request=request_message(4)).SerializeToString() + Call(session=b"s" * 16).SerializeToString()
    for _ in range(4):
        np.testing.assert_array_equal(input_of(validate(cache, model, odd)), [4, 4])
    assert not cache._cached


def test_invalid_bytes() -> None:
    with pytest.raises(HalError, match="cannot be decoded"):
        new_cache().decode(b"\xff\xff\xff")


def test_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_template, "MAX_ENTRIES", 3)
    cache, model = new_cache(), ValidatingModel()
    for number in range(10):
        for _ in range(3):
            validate(cache, model, encoded(1, handle=bytes([number]) * 16))
    (entries,) = cache._models.values()
    assert 0 < len(cache._cached) <= 3
    assert len(entries.seen) <= 3
    monkeypatch.setattr(decoded_request_cache, "MAX_FIXED_BYTES", 10)
    for _ in range(3):
        validate(cache, model, encoded(1, handle=b"z" * 16))
    assert cache.decode(encoded(1, handle=b"z" * 16)).cached is None


def test_cache_does_not_keep_models_alive() -> None:
    cache, model = new_cache(), ValidatingModel()
    for _ in range(3):
        validate(cache, model, encoded(1))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert not cache._models
    assert not cache._cached
