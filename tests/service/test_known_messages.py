"""service/known_messages.py and known_answers.py: requests and answers as protobuf gives them, and nobody else's."""

import gc
import weakref
from typing import cast

import numpy as np
import pytest

from driver.memory import BoundRequest, ValidRequest
from driver.prepared_model import PreparedModel
from nnhal import moulds, wire
from nnhal.errors import HalError
from nnhal.types import UNMEASURED, AnyArray, BufferToken, Bytes, ExecutionResult, OutputShape, Timing
from nnhal.v1 import prepared_model_pb2, types_pb2
from service import known_messages
from service.known_answers import KnownAnswers
from service.known_messages import KnownMessages
from service.known_requests import KnownRequests
from service.limits import Limits, MemoryQuota
from service.memory import MemoryObject
from service.returning import Returning
from service.sessions import Session
from tests.service.test_known_requests import OPERAND, PLAIN, Judge, message

Call = prepared_model_pb2.ExecuteSynchronouslyRequest
Known = KnownMessages[Call, bytes]
SESSION = Session("s", "anyone")


def known_messages_of(limits: Limits | None = None) -> Known:
    return KnownMessages(
        KnownRequests(limits or Limits()), Call, lambda one: one.request, lambda one: one.prepared_model
    )


def encoded(value: float, handle: bytes = b"h" * 16, deadline_ns: int | None = None, length: int = 8) -> bytes:
    call = Call(session=b"s" * 16, prepared_model=handle, request=message(value, length), deadline_ns=deadline_ns)
    return call.SerializeToString()


def read(known: Known, judge: Judge, raw: bytes) -> ValidRequest:
    return known.read(SESSION, cast(PreparedModel, judge), known.decode(raw), PLAIN)


def input_of(request: ValidRequest) -> AnyArray:
    found = BoundRequest(request, [OPERAND]).inputs[0]
    assert found is not None
    return found


def test_a_known_message_is_not_decoded_and_has_its_own_values() -> None:
    known, judge = known_messages_of(), Judge()
    for number in range(5):
        received = known.decode(encoded(number))
        assert (received.message is None) == (number >= 2), "what came twice is known"
        assert received.call == b"h" * 16
        np.testing.assert_array_equal(input_of(read(known, judge, encoded(number))), [number, number])
    assert judge.judged == 1


def test_a_message_that_differs_elsewhere_is_decoded() -> None:
    known, judge = known_messages_of(), Judge()
    for _ in range(3):
        read(known, judge, encoded(1))
    assert known.decode(encoded(1)).form is not None
    assert known.decode(encoded(1, handle=b"i" * 16)).form is None
    assert known.decode(encoded(1, deadline_ns=5)).form is None
    assert known.decode(encoded(1, length=7)).form is None
    for _ in range(3):
        read(known, judge, encoded(1, deadline_ns=10**9))
    assert known.decode(encoded(1, deadline_ns=10**9)).form is not None
    assert known.decode(encoded(1, deadline_ns=10**9 + 1)).form is None, "also where only the end does"


def test_messages_with_deadlines_that_differ_are_not_kept() -> None:
    known, judge = known_messages_of(), Judge()
    for number in range(10):
        read(known, judge, encoded(1, deadline_ns=10**9 + number))
    assert not known._forms
    for _ in range(3):
        read(known, judge, encoded(1, deadline_ns=10**9))
    assert known._forms


def test_what_a_handle_or_token_stands_for_is_looked_up_each_time() -> None:
    known, judge = known_messages_of(), Judge()
    handle = SESSION.add(MemoryObject(np.zeros(8, np.uint8)))
    mapped = Call(session=b"s" * 16, request=message(1))
    mapped.request.pools[0].pool.mapped.memory = handle
    both = Call(session=b"s" * 16, request=message(1))
    both.request.pools.add().CopyFrom(mapped.request.pools[0])
    token = Call(session=b"s" * 16, request=message(1, first=BufferToken(1)))
    for _ in range(4):
        read(known, judge, mapped.SerializeToString())
        read(known, judge, token.SerializeToString())
        read(known, judge, both.SerializeToString())
    assert not known._forms
    SESSION.release([handle])
    with pytest.raises(HalError, match="no such object"):
        read(known, judge, mapped.SerializeToString())


def test_what_is_refused_is_refused_again() -> None:
    known, judge = known_messages_of(), Judge()
    for _ in range(4):
        with pytest.raises(HalError, match="too long or too short"):
            read(known, judge, encoded(1, length=12))
    small = known_messages_of(Limits({"inline_bytes": 7}))
    for _ in range(4):
        with pytest.raises(HalError, match="inline_bytes"):
            read(small, judge, encoded(1))


def test_another_encoding_is_understood_and_not_kept() -> None:
    known, judge = known_messages_of(), Judge()
    odd = Call(request=message(4)).SerializeToString() + Call(session=b"s" * 16).SerializeToString()
    for _ in range(4):
        np.testing.assert_array_equal(input_of(read(known, judge, odd)), [4, 4])
    assert not known._forms


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(HalError, match="cannot be decoded"):
        known_messages_of().decode(b"\xff\xff\xff")


def test_forms_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moulds, "FORMS_KEPT", 3)
    known, judge = known_messages_of(), Judge()
    for number in range(10):
        for _ in range(3):
            read(known, judge, encoded(1, handle=bytes([number]) * 16))
    (of_model,) = known._models.values()
    assert 0 < len(known._forms) <= 3
    assert len(of_model.seen) <= 3
    monkeypatch.setattr(known_messages, "FORM_BYTES", 10)
    for _ in range(3):
        read(known, judge, encoded(1, handle=b"z" * 16))
    assert known.decode(encoded(1, handle=b"z" * 16)).form is None


def test_no_model_is_kept_alive() -> None:
    known, judge = known_messages_of(), Judge()
    for _ in range(3):
        read(known, judge, encoded(1))
    gone = weakref.ref(judge)
    del judge
    gc.collect()
    assert gone() is None
    assert not known._models
    assert not known._forms, "and nothing stays of it"


# ---- Answers --------------------------------------------------------------------------------------------


MODEL = cast(PreparedModel, Judge())


def answers(limits: Limits) -> KnownAnswers[types_pb2.ExecutionResult]:
    return KnownAnswers(types_pb2.ExecutionResult, lambda one: one, limits, MemoryQuota(limits))


def result(*outputs: Bytes | None, timing: Timing = UNMEASURED, fits: bool = True) -> ExecutionResult:
    shapes = tuple(OutputShape(() if data is None else (data.size,), fits) for data in outputs)
    return ExecutionResult(fits, shapes, timing, outputs if fits else ())


def numbers(value: int, size: int) -> Bytes:
    return np.full(size, value, np.uint8)


@pytest.mark.parametrize(
    "one",
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
def test_an_answer_is_what_protobuf_makes_of_it(one: object) -> None:
    known, limits = answers(Limits()), Limits()
    for value in range(4):
        made = one(value)  # type: ignore[operator]
        returning = Returning(SESSION, limits["inline_bytes"], MemoryQuota(limits))
        assert known.encode(made, MODEL, SESSION) == wire.result_message(made, returning).SerializeToString()


def test_outputs_without_room_become_memories_each_time() -> None:
    known = answers(Limits({"inline_bytes": 4}))
    handles = set()
    for value in range(3):
        answer = types_pb2.ExecutionResult.FromString(known.encode(result(numbers(value, 5)), MODEL, SESSION))
        handles.add(answer.returned[0].memory)
        assert SESSION.get(answer.returned[0].memory, MemoryObject).buffer[0] == value
    assert len(handles) == 3
    SESSION.release(handles)


def test_forms_of_answers_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moulds, "FORMS_KEPT", 3)
    known, model = answers(Limits()), cast(PreparedModel, Judge())
    for size in range(1, 10):
        known.encode(result(numbers(1, size)), model, SESSION)
    assert 0 < len(known._known[model]) <= 3
    del model
    assert not known._known, "and go with their model"
