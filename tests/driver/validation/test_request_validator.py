"""RequestValidator: cached validation gives the same results as fresh validation."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import (
    PROT_READ,
    PROT_WRITE,
    BufferToken,
    DataLocation,
    Memory,
    Operand,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal.types import OperandType as T
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.validation import request as module
from nnhal_driver.validation.request import RequestValidator, validate_request

INPUTS = (Operand(T.TENSOR_FLOAT32, (2,)),)
OUTPUTS = (Operand(T.TENSOR_FLOAT32, (0,)),)
BUFFERS = [np.zeros(16, np.uint8), np.zeros(16, np.uint8), np.zeros(8, np.uint8)]
BUFFERS[2].flags.writeable = False

POOLS: st.SearchStrategy[RequestMemoryPool] = st.one_of(
    st.builds(
        Memory,
        st.sampled_from(BUFFERS),
        st.sampled_from([0, 8]),
        st.sampled_from([None, 8, 16]),
        st.sampled_from([PROT_READ, PROT_READ | PROT_WRITE]),
    ),
    st.builds(ReturnedPool, st.sampled_from([None, 8])),
    st.builds(BufferToken, st.sampled_from([0, 1])),
)


def arguments(pool: int) -> st.SearchStrategy[RequestArgument]:
    """Return a strategy for arguments, most of them in the given pool."""
    pools = st.sampled_from([pool, pool, pool, 1 - pool, 2])
    location = st.builds(DataLocation, pools, st.sampled_from([0, 8]), st.sampled_from([0, 8]), st.just(0))
    return st.builds(RequestArgument, st.booleans(), location, st.sampled_from([(), (2,), (3,)]))


REQUESTS = st.builds(
    Request,
    st.tuples(arguments(0)),
    st.tuples(arguments(1)),
    st.tuples(POOLS, POOLS),
)


def error_text(validate: Callable[..., object], *arguments: object, fenced: bool) -> str:
    try:
        validate(*arguments, fenced=fenced)
    except HalError as error:
        return str(error)
    return ""


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(REQUESTS, st.booleans()), min_size=1, max_size=20))
def test_cached_validation_equals_fresh_validation(requests: list[tuple[Request, bool]]) -> None:
    validator = RequestValidator(INPUTS, OUTPUTS)
    for request, fenced in requests:
        fresh = error_text(validate_request, request, INPUTS, OUTPUTS, fenced=fenced)
        assert error_text(validator.validate, request, fenced=fenced) == fresh


@settings(max_examples=100, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=20))
def test_requests_of_one_form_have_the_same_bindings(requests: list[Request]) -> None:
    validator = RequestValidator(INPUTS, OUTPUTS)
    for request in requests:
        try:
            form = validator.validate(request)
        except HalError:
            continue
        fresh = ValidRequest.bind(request, INPUTS, OUTPUTS)
        form.bound = form.bound or fresh.with_pools(())
        assert isinstance(form.bound, ValidRequest)
        assert form.bound.with_pools(request.pools) == fresh


def request(pools: tuple[RequestMemoryPool, ...]) -> Request:
    read = RequestArgument(False, DataLocation(0, 0, 8))
    return Request((read,), (RequestArgument(False, DataLocation(1, 0, 8)),), pools)


def test_windows_on_one_buffer_have_another_key_than_two_buffers() -> None:
    validator = RequestValidator(INPUTS, OUTPUTS)
    validator.validate(request((Memory(BUFFERS[0]), Memory(BUFFERS[1]))))
    with pytest.raises(HalError, match="V-REQARG-07"):
        validator.validate(request((Memory(BUFFERS[0]), Memory(BUFFERS[0]))))


def test_key_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    validated: list[Request] = []
    monkeypatch.setattr(module, "validate_request", lambda request, *_, **__: validated.append(request))
    validator = RequestValidator(INPUTS, OUTPUTS)
    for _ in range(3):
        validator.validate(request((Memory(np.zeros(8, np.uint8)), Memory(np.zeros(8, np.uint8)))))
    assert len(validated) == 1
    for size in range(8, 500):  # keys that never recur must not fill the memory
        validator.validate(request((Memory(np.zeros(size, np.uint8)), Memory(np.zeros(8, np.uint8)))))
    assert len(validator._valid_forms) <= 64
    large = Request((RequestArgument(),) * 300, (), ())
    before = len(validated)
    validator.validate(large)
    validator.validate(large)
    assert len(validated) == before + 2
