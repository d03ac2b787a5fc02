"""Verdicts that are kept: the same as those of a fresh look, whatever was judged before."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.validation import request as module
from driver.validation.request import ValidRequests, validate_request
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
    """An argument, mostly in the pool that is meant for it."""
    pools = st.sampled_from([pool, pool, pool, 1 - pool, 2])
    location = st.builds(DataLocation, pools, st.sampled_from([0, 8]), st.sampled_from([0, 8]), st.just(0))
    return st.builds(RequestArgument, st.booleans(), location, st.sampled_from([(), (2,), (3,)]))


REQUESTS = st.builds(
    Request,
    st.tuples(arguments(0)),
    st.tuples(arguments(1)),
    st.tuples(POOLS, POOLS),
)


def verdict(judge: Callable[..., None], *arguments: object, fenced: bool) -> str:
    try:
        judge(*arguments, fenced=fenced)
    except HalError as error:
        return str(error)
    return ""


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(REQUESTS, st.booleans()), min_size=1, max_size=20))
def test_verdicts_are_those_of_a_fresh_look(requests: list[tuple[Request, bool]]) -> None:
    kept = ValidRequests(INPUTS, OUTPUTS)
    for request, fenced in requests:
        fresh = verdict(validate_request, request, INPUTS, OUTPUTS, fenced=fenced)
        assert verdict(kept.hold, request, fenced=fenced) == fresh


def request(pools: tuple[RequestMemoryPool, ...]) -> Request:
    read = RequestArgument(False, DataLocation(0, 0, 8))
    return Request((read,), (RequestArgument(False, DataLocation(1, 0, 8)),), pools)


def test_two_windows_on_one_buffer_are_not_two_buffers() -> None:
    kept = ValidRequests(INPUTS, OUTPUTS)
    kept.hold(request((Memory(BUFFERS[0]), Memory(BUFFERS[1]))))
    with pytest.raises(HalError, match="V-REQARG-07"):
        kept.hold(request((Memory(BUFFERS[0]), Memory(BUFFERS[0]))))


def test_a_form_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Request] = []
    monkeypatch.setattr(module, "validate_request", lambda request, *_, **__: judged.append(request))
    kept = ValidRequests(INPUTS, OUTPUTS)
    for _ in range(3):
        kept.hold(request((Memory(np.zeros(8, np.uint8)), Memory(np.zeros(8, np.uint8)))))
    assert len(judged) == 1
    for size in range(8, 500):  # forms that never come again must not fill the memory
        kept.hold(request((Memory(np.zeros(size, np.uint8)), Memory(np.zeros(8, np.uint8)))))
    assert len(kept._forms) <= 64
    large = Request((RequestArgument(),) * 300, (), ())
    before = len(judged)
    kept.hold(large)
    kept.hold(large)
    assert len(judged) == before + 2
