"""nnhal/moulds.py and nnhal/forms.py: what comes out of a mould is what protobuf would have made."""

import numpy as np
import pytest

from nnhal import moulds
from nnhal.forms import KnownAnswers, KnownCalls
from nnhal.moulds import Mould, inline_pools
from nnhal.tensors import Ends, Outputs
from nnhal.types import UNMEASURED, AnyArray, Operand, OperandType, Timing
from nnhal.v1 import prepared_model_pb2, types_pb2


def request(*values: bytes) -> types_pb2.Request:
    pools = [types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=value)) for value in values]
    returned = types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool())
    location = types_pb2.DataLocation(pool_index=1, length=70000)
    inputs = [types_pb2.RequestArgument(location=location, dimensions=[3, 5])]
    return types_pb2.Request(inputs=inputs, pools=[*pools, returned])


@pytest.mark.parametrize("sizes", [(1,), (127,), (128,), (4, 70000), (1, 1, 1), (300, 2, 129)])
def test_a_filled_mould_is_the_message(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    mould = Mould.of(request(*(bytes(size) for size in sizes)), inline_pools)
    assert mould is not None
    for _ in range(5):
        values = [random.integers(0, 256, size, np.uint8) for size in sizes]
        encoded = request(*(value.tobytes() for value in values)).SerializeToString()
        assert mould.fill(values) == encoded
        assert mould.fits(encoded)
        assert [encoded[start:end] for start, end in mould.places] == [value.tobytes() for value in values]


def test_another_message_does_not_fit() -> None:
    mould = Mould.of(request(b"abcd", b"efgh"), inline_pools)
    assert mould is not None
    encoded = request(b"ABCD", b"EFGH").SerializeToString()
    inside = {at for start, end in mould.places for at in range(start, end)}
    for at in range(len(encoded)):
        changed = bytearray(encoded)
        changed[at] ^= 1
        assert mould.fits(bytes(changed)) == (at in inside), "all but the values counts"
    assert not mould.fits(encoded[:-1])
    assert not mould.fits(encoded + b"\0")


def test_what_has_no_mould(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Mould.of(request(), inline_pools) is None
    assert Mould.of(request(b"abc", b""), inline_pools) is None
    monkeypatch.setattr(moulds, "LARGEST_VALUES", 10)
    assert Mould.of(request(bytes(5), bytes(5)), inline_pools) is not None
    assert Mould.of(request(bytes(5), bytes(6)), inline_pools) is None


def test_the_message_of_a_mould_keeps_its_values() -> None:
    message = request(b"abcd")
    Mould.of(message, inline_pools)
    assert message == request(b"abcd")


# ---- Calls and answers ----------------------------------------------------------------------------------


def call(*arrays: AnyArray | None) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    given = [array.tobytes() for array in arrays if array is not None]
    return prepared_model_pb2.ExecuteSynchronouslyRequest(session=b"s" * 16, request=request(*given))


def test_calls_differ_in_values_alone() -> None:
    calls = KnownCalls()
    first = [np.ones((3, 5), np.float32), None, np.ones(2, np.int32)]
    assert calls.encode("how", first) is None
    calls.learn("how", first, call(*first), lambda one: inline_pools(one.request))
    second = [np.full((3, 5), 7, np.float32), None, np.full(2, 9, np.int32)]
    assert calls.encode("how", second) == call(*second).SerializeToString()
    assert calls.encode("otherwise", second) is None
    assert calls.encode("how", [np.ones((5, 3), np.float32), *second[1:]]) is None
    assert calls.encode("how", [second[0], second[2], None]) is None


ENDS = Ends((), (Operand(OperandType.TENSOR_FLOAT32, (0, 2)), Operand(OperandType.TENSOR_BOOL8, (3,))), (), ("a", "b"))


def answer(rows: int, value: float, timing: Timing = UNMEASURED) -> types_pb2.ExecutionResult:
    outputs = [np.full((rows, 2), value, np.float32).tobytes(), np.array([True, value > 2, False]).tobytes()]
    return types_pb2.ExecutionResult(
        output_sufficient_size=True,
        output_shapes=[types_pb2.OutputShape(dimensions=shape, is_sufficient=True) for shape in ((rows, 2), (3,))],
        timing=types_pb2.Timing(time_on_device_ns=timing.time_on_device_ns, time_in_driver_ns=timing.time_in_driver_ns),
        returned=[types_pb2.ReturnedOutput(inline=output) for output in outputs],
    )


def outputs(rows: int, value: float, timing: Timing = UNMEASURED) -> Outputs:
    return Outputs.of([np.full((rows, 2), value, np.float32), np.array([True, value > 2, False])], ("a", "b"), timing)


def test_answers_differ_in_values_alone() -> None:
    known = KnownAnswers(ENDS)
    first = answer(2, 1)
    assert known.outputs(first.SerializeToString()) is None
    known.learn(first.SerializeToString(), first, lambda one: one.returned, outputs(2, 1))
    found = known.outputs(answer(2, 5).SerializeToString())
    assert found is not None
    for mine, wanted in zip(found, outputs(2, 5), strict=True):
        np.testing.assert_array_equal(mine, wanted)
        assert mine.dtype == wanted.dtype
        assert mine.flags.writeable
        assert mine.flags.owndata
    assert found["b"] is found[1]
    assert found.timing == UNMEASURED
    assert known.outputs(answer(3, 5).SerializeToString()) is None
    assert known.outputs(answer(2, 5, Timing(1, 2)).SerializeToString()) is None


def test_what_was_measured_is_not_kept() -> None:
    known = KnownAnswers(ENDS)
    measured = answer(2, 1, Timing(3, 4))
    known.learn(measured.SerializeToString(), measured, lambda one: one.returned, outputs(2, 1, Timing(3, 4)))
    assert known.outputs(measured.SerializeToString()) is None


def test_forms_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moulds, "FORMS_KEPT", 3)
    known, calls = KnownAnswers(ENDS), KnownCalls()
    for rows in range(1, 10):
        message, array = answer(rows, 1), np.ones((rows, 2), np.float32)
        known.learn(message.SerializeToString(), message, lambda one: one.returned, outputs(rows, 1))
        calls.learn("how", [array], call(array), lambda one: inline_pools(one.request))
    assert len(known._known) <= 3
    assert len(calls._moulds) <= 3
