"""service/known_requests.py: what is judged once, what each time, and that values are never mixed up."""

from typing import cast

import numpy as np
import pytest

from driver.memory import BoundRequest, ValidRequest
from driver.prepared_model import PreparedModel
from nnhal import moulds, wire
from nnhal.errors import HalError, invalid_argument
from nnhal.types import (
    BufferToken,
    DataLocation,
    ExecutionConfig,
    Memory,
    Operand,
    OperandType,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal.v1 import types_pb2
from service.known_requests import KnownRequests
from service.limits import Limits
from service.memory import MemoryObject
from service.sessions import Session

OPERAND = Operand(OperandType.TENSOR_FLOAT32, (2,))
PLAIN = ExecutionConfig()


class Judge:
    """Stands for a prepared model that takes 8 bytes of input; counts what it judges."""

    def __init__(self) -> None:
        self.judged = 0

    def validate(self, request: Request, config: ExecutionConfig) -> ValidRequest:
        """Refuses inputs of another length."""
        self.judged += 1
        if request.inputs[0].location.length != 8:
            raise invalid_argument("too long or too short")
        return ValidRequest.of(request, [OPERAND], [OPERAND])


def message(value: float, length: int = 8, first: RequestMemoryPool | None = None) -> types_pb2.Request:
    pool = Memory.of(np.full(2, value, np.float32)) if first is None else first
    inputs = (RequestArgument(location=DataLocation(0, 0, length)),)
    outputs = (RequestArgument(location=DataLocation(1)),)
    return wire.request_message(Request(inputs, outputs, (pool, ReturnedPool())))


def read(
    known: KnownRequests, judge: Judge, request: types_pb2.Request, config: ExecutionConfig = PLAIN
) -> ValidRequest:
    return known.read(Session("s", "anyone"), cast(PreparedModel, judge), request, config)


def test_a_request_of_a_known_form_is_not_judged_again() -> None:
    known, judge = KnownRequests(Limits()), Judge()
    for value in (1.0, 2.0, 3.0):
        bound = BoundRequest(read(known, judge, message(value)), [OPERAND])
        assert bound.inputs[0] is not None
        np.testing.assert_array_equal(bound.inputs[0], [value, value])
    assert judge.judged == 1


def test_another_form_is_judged() -> None:
    known, judge = KnownRequests(Limits()), Judge()
    read(known, judge, message(1))
    read(known, judge, message(1), ExecutionConfig(loop_timeout_duration_ns=5))
    read(known, judge, message(1, first=Memory.of(np.zeros(3, np.float32))))
    read(known, Judge(), message(1))
    assert judge.judged == 3, "the configuration and the number of bytes are part of the form"


def test_what_is_refused_is_refused_again() -> None:
    known, judge = KnownRequests(Limits()), Judge()
    for _ in range(2):
        with pytest.raises(HalError, match="too long or too short"):
            read(known, judge, message(1, length=12))
    assert judge.judged == 2


def test_limits_hold() -> None:
    known = KnownRequests(Limits({"inline_bytes": 7}))
    for _ in range(2):
        with pytest.raises(HalError, match="inline_bytes"):
            read(known, Judge(), message(1))


def test_what_handles_and_tokens_stand_for_is_looked_up_each_time() -> None:
    known, judge, session = KnownRequests(Limits()), Judge(), Session("s", "anyone")
    handle = session.add(MemoryObject(np.zeros(8, np.uint8)))
    for _ in range(2):
        mapped = message(1)
        mapped.pools[0].pool.mapped.memory = handle
        known.read(session, cast(PreparedModel, judge), mapped, PLAIN)
        read(known, judge, message(1, first=BufferToken(1)))
    assert judge.judged == 4
    session.release([handle])
    gone = message(1)
    gone.pools[0].pool.mapped.memory = handle
    with pytest.raises(HalError, match="no such object"):
        known.read(session, cast(PreparedModel, judge), gone, PLAIN)


def test_forms_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moulds, "FORMS_KEPT", 3)
    known, judge = KnownRequests(Limits()), Judge()
    for timeout in range(10):
        read(known, judge, message(1), ExecutionConfig(loop_timeout_duration_ns=timeout))
    (kept,) = known._known.values()
    assert len(kept) <= 3
    del kept, judge
    assert not known._known, "and go with their model"
