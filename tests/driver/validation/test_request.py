"""V-REQ, V-REQARG, V-REQMODEL: one invalid request per case, and valid requests."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    PROT_READ,
    BufferToken,
    DataLocation,
    ErrorStatus,
    Memory,
    Operand,
    OperandType,
    Request,
    RequestArgument,
    ReturnedPool,
    UnsetUnion,
)
from nnhal_driver.validation.request import validate_request
from tests.driver.validation.models import EXTENSION, INPUT, OUTPUT, tensor

INPUTS = (tensor(INPUT), Operand(OperandType.INT32, lifetime=INPUT), tensor(INPUT, (0, 2)))
OUTPUTS = (tensor(OUTPUT), tensor(OUTPUT, ()))


def _argument(pool: int, offset: int, length: int, *dimensions: int, padding: int = 0) -> RequestArgument:
    return RequestArgument(location=DataLocation(pool, offset, length, padding), dimensions=dimensions)


_NONE = RequestArgument(has_no_value=True)
_GIVEN = Memory(np.zeros(64, np.uint8), prot=PROT_READ)
_ROOM = Memory(np.zeros(64, np.uint8))

BASE = Request(
    (_argument(0, 0, 24), _argument(0, 24, 4), _argument(0, 28, 32, 4, 2, padding=4)),
    (_argument(1, 0, 24), _argument(1, 24, 40)),
    (_GIVEN, _ROOM),
)


def _input(index: int, argument: RequestArgument, base: Request = BASE) -> Request:
    return replace(base, inputs=(*base.inputs[:index], argument, *base.inputs[index + 1 :]))


def _output(index: int, argument: RequestArgument, base: Request = BASE) -> Request:
    return replace(base, outputs=(*base.outputs[:index], argument, *base.outputs[index + 1 :]))


def _pools(*pools: Any) -> Request:
    return replace(BASE, pools=pools)


def _also(pool: Any) -> Request:
    """Return the base request with an additional pool 2."""
    return replace(BASE, pools=(*BASE.pools, pool))


@dataclass(frozen=True)
class RequestCase:
    """A request that breaks one rule; `raised` as in ModelCase."""

    rule: str
    request: Request
    reason: str
    raised: str | None = None
    fenced: bool = False
    inputs: tuple[Operand, ...] = INPUTS
    outputs: tuple[Operand, ...] = OUTPUTS


WHOLE = (tensor(OUTPUT), tensor(OUTPUT, (2, 5)))
_SCALAR_OF_RANK_1 = _argument(0, 24, 4, 1)
_OPAQUE = (Operand(EXTENSION, (0, 2), lifetime=INPUT),)

ALONE = [
    RequestCase("V-REQ-01", _pools(_GIVEN, UnsetUnion()), "request pool 1 is of an unknown kind", "V-WIRE-07"),
    RequestCase("V-REQ-01", _pools(Memory(np.zeros(64, np.uint8), 1, 64), _ROOM), "ends at byte 65", "V-POOL-02"),
    RequestCase("V-REQ-01", _pools(_GIVEN, ReturnedPool(0)), "request pool 1 has size 0", "V-POOL-01"),
    RequestCase("V-REQ-01", _pools(_GIVEN, ReturnedPool(-1)), "request pool 1 has size -1", "V-POOL-01"),
    RequestCase("V-POOL-05", _also(BufferToken(0)), "request pool 2 has token 0, must be > 0"),
    RequestCase("V-POOL-05", _also(BufferToken(-1)), "request pool 2 has token -1"),
    RequestCase("V-REQARG-01", _input(2, _argument(0, 28, 32, -4, 2)), "input 2 of the request has dimension -4"),
    RequestCase("V-REQARG-01", _output(1, _argument(-1, 24, 40)), "output 1 of the request has pool index -1"),
    RequestCase("V-REQARG-01", _output(1, _argument(1, -1, 40)), "has offset -1"),
    RequestCase("V-REQARG-01", _output(1, _argument(1, 24, 2**32)), "has length 4294967296"),
    RequestCase("V-REQARG-01", _output(1, _argument(1, 24, 40, padding=-1)), "has padding -1"),
    RequestCase("V-REQARG-01", _input(0, RequestArgument(True, DataLocation(-1))), "has pool index -1"),
    RequestCase(
        "V-REQARG-02", _input(0, replace(_argument(0, 0, 24), has_no_value=True)), "input 0 of the request has no"
    ),
    RequestCase(
        "V-REQARG-02", _output(0, replace(_NONE, dimensions=(2, 3))), "its location must be 0 and its dimensions"
    ),
    RequestCase("V-REQARG-03", _output(0, _argument(2, 0, 24)), "output 0 of the request has pool index 2 of 2 pools"),
    RequestCase("V-REQARG-04", _output(1, _argument(1, 25, 40)), "ends at byte 65 of pool 1, which has 64 bytes"),
    RequestCase("V-REQARG-04", _output(1, _argument(1, 24, 40, padding=1)), "ends at byte 65"),
    RequestCase("V-REQARG-04", _output(1, _argument(1, 2**32 - 1, 1)), "ends at byte 4294967296"),
    RequestCase("V-REQARG-04", _output(1, _argument(2, 0, 40), _also(BufferToken(1))), "uses the whole of pool 2"),
    RequestCase("V-REQARG-04", _output(1, _argument(2, 0, 0, padding=1), _also(BufferToken(1))), "whole of pool 2"),
    RequestCase("V-REQARG-04", _output(1, _argument(2, 1, 0), _also(ReturnedPool())), "uses the whole of pool 2"),
    RequestCase("V-REQARG-04", _output(1, _argument(2, 0, 17), _also(ReturnedPool(16))), "ends at byte 17 of pool 2"),
    RequestCase("V-REQARG-05", _output(1, _argument(1, 24, 0)), "output 1 of the request has length 0, must be > 0"),
    RequestCase("V-REQARG-05", _output(1, _argument(2, 0, 0), _also(ReturnedPool(16))), "has length 0"),
    RequestCase("", _input(0, _argument(2, 0, 0), _also(ReturnedPool())), "input 0 of the request is in a returned"),
    RequestCase("", _input(0, _argument(2, 0, 24), _also(ReturnedPool(24))), "input 0 of the request is in a returned"),
    RequestCase("", _pools(_GIVEN, replace(_ROOM, prot=PROT_READ)), "output 0 of the request is in pool 1, which is"),
    RequestCase("", _pools(_GIVEN, Memory(np.frombuffer(bytes(64), np.uint8))), "which is read-only"),
    RequestCase(
        "",
        _output(0, _argument(2, 0, 0), _also(ReturnedPool())),
        "a fenced execution cannot",
        fenced=True,
        outputs=WHOLE,
    ),
    RequestCase(
        "", _output(0, _argument(2, 0, 24), _also(ReturnedPool(24))), "fenced execution", fenced=True, outputs=WHOLE
    ),
]

_SHARED = Memory(np.zeros(128, np.uint8))
_SAME = replace(BASE, pools=(_SHARED, _SHARED))
_ONE_BYTE = replace(
    BASE,
    pools=(_SHARED, _SHARED),
    inputs=(_argument(0, 0, 24), _argument(0, 24, 4), _argument(0, 28, 32, 4, 2)),
    outputs=(_argument(1, 59, 24), _NONE),
)

OVERLAPS = [
    RequestCase(
        "V-REQARG-07", _output(1, _argument(1, 23, 40)), "has output 0 and output 1 on the same bytes of a pool"
    ),
    RequestCase("V-REQARG-07", _output(0, _argument(1, 40, 24)), "has output 1 and output 0"),
    RequestCase("V-REQARG-07", _output(1, _argument(1, 8, 4)), "has output 0 and output 1"),
    RequestCase("V-REQARG-07", _SAME, "has input 0 and output 0"),
    RequestCase("V-REQARG-07", _ONE_BYTE, "has input 2 and output 0"),
    RequestCase(
        "V-REQARG-07",
        replace(
            BASE,
            pools=(*BASE.pools, ReturnedPool(64)),
            outputs=(_argument(2, 0, 24), _argument(2, 20, 40)),
        ),
        "has output 0 and output 1",
    ),
]

FITTING = [
    RequestCase("V-REQMODEL-01", replace(BASE, inputs=BASE.inputs[:-1]), "has 2 inputs, but the model has 3"),
    RequestCase("V-REQMODEL-01", replace(BASE, outputs=BASE.outputs[:-1]), "has 1 outputs, but the model has 2"),
    RequestCase("V-REQMODEL-01", replace(BASE, outputs=(*BASE.outputs, _NONE)), "has 3 outputs, but the model has 2"),
    RequestCase(
        "V-REQMODEL-03",
        _input(2, _argument(0, 28, 32)),
        "input 2 of the request (TENSOR_FLOAT32) has dimensions (0, 2)",
    ),
    RequestCase("V-REQMODEL-03", BASE, "has dimensions () in the model", inputs=(tensor(INPUT, ()), *INPUTS[1:])),
    RequestCase(
        "V-REQMODEL-03",
        replace(BASE, inputs=BASE.inputs[:1]),
        "input 0 of the request (operand type 65536) has dimensions (0, 2)",
        inputs=_OPAQUE,
    ),
    RequestCase("V-REQMODEL-04", BASE, "output 1 of the request (TENSOR_FLOAT32) has dimensions ()", fenced=True),
    RequestCase("V-REQMODEL-04", BASE, "output 1", fenced=True, outputs=(tensor(OUTPUT), tensor(OUTPUT, (2, 0)))),
    RequestCase("V-REQMODEL-05", _input(0, _argument(0, 0, 24, 6)), "has rank 1, but 2 in the model"),
    RequestCase("V-REQMODEL-05", _input(0, _argument(0, 0, 24, 3, 2)), "has dimension 0 of 3, but 2 in the model"),
    RequestCase("V-REQMODEL-05", _input(2, _argument(0, 28, 12, 1, 3)), "has dimension 1 of 3, but 2 in the model"),
    RequestCase("V-REQMODEL-05", _output(0, _argument(1, 0, 24, 2, 4)), "output 0 of the request (TENSOR_FLOAT32) has"),
    RequestCase("V-REQMODEL-06", _input(2, _argument(0, 28, 32, 0, 2)), "has dimension 0 unknown"),
    RequestCase("V-REQMODEL-06", _output(1, _argument(1, 24, 40, 2, 0)), "has dimension 1 unknown"),
    RequestCase("V-REQMODEL-06", _output(1, _argument(1, 24, 40, 2, 0)), "has dimension 1 unknown", fenced=True),
    RequestCase("V-REQMODEL-07", _input(0, _argument(0, 0, 23)), "has length 23, must be 24"),
    RequestCase(
        "V-REQMODEL-07", _input(1, _argument(0, 24, 5)), "input 1 of the request (INT32) has length 5, must be 4"
    ),
    RequestCase("V-REQMODEL-07", _input(2, _argument(0, 28, 36, 4, 2)), "has length 36, must be 32"),
    RequestCase(
        "V-REQMODEL-07", _output(0, _argument(1, 0, 20)), "output 0 of the request (TENSOR_FLOAT32) has length 20"
    ),
    RequestCase("V-REQMODEL-07", _output(1, _argument(1, 24, 40, 2, 2)), "has length 40, must be 16"),
    RequestCase(
        "V-REQMODEL-07", _output(1, _argument(1, 24, 40, *(2**31 - 1,) * 1_000_000)), "has a shape of more than"
    ),
    RequestCase(
        "V-REQMODEL-08", _input(1, _SCALAR_OF_RANK_1), "input 1 of the request (INT32) has dimensions, but is a"
    ),
]

CASES = [*ALONE, *OVERLAPS, *FITTING]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_broken_rule_is_named(case: RequestCase) -> None:
    with pytest.raises(HalError) as caught:
        validate_request(case.request, case.inputs, case.outputs, fenced=case.fenced)
    raised = case.rule if case.raised is None else case.raised
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, raised)
    assert case.reason in caught.value.reason


def test_windows_on_one_buffer_overlap() -> None:
    buffer = np.zeros(128, np.uint8)
    inputs, outputs = (tensor(INPUT, (16,)),), (tensor(OUTPUT, (16,)),)

    def request(start: int) -> Request:
        pools = (Memory(buffer, 0, 64), Memory(buffer, start, 64))
        return Request((_argument(0, 0, 64),), (_argument(1, 0, 64),), pools)

    validate_request(request(64), inputs, outputs)
    with pytest.raises(HalError, match="has input 0 and output 0 on the same bytes"):
        validate_request(request(63), inputs, outputs)


_RETURNED = ReturnedPool(24)

VALID_REQUESTS = {
    "base request": BASE,
    "omitted": _input(0, _NONE, _output(0, _NONE)),
    "everything omitted, and no pools": Request((_NONE,) * 3, (_NONE,) * 2, ()),
    "inputs that overlap": _input(1, _argument(0, 8, 4)),
    "same input twice": _input(1, _argument(0, 0, 4)),
    "unknown output shape given": _output(1, _argument(1, 24, 40, 2, 5)),
    "known dimensions repeated": _output(0, _argument(1, 0, 24, 2, 3)),
    "unused pools": _also(BufferToken(7)),
    "output in a token": _output(1, _argument(2, 0, 0), _also(BufferToken(7))),
    "outputs in one returned pool that grows": replace(
        BASE, outputs=(_argument(2, 0, 0), _argument(2, 0, 0)), pools=(*BASE.pools, ReturnedPool())
    ),
    "outputs in two equal returned pools": replace(
        BASE, outputs=(_argument(2, 0, 24), _argument(3, 0, 24)), pools=(*BASE.pools, _RETURNED, _RETURNED)
    ),
    "padding over another output": _output(0, _argument(1, 0, 24, padding=8)),
    "output right before an input of its pool": replace(
        _output(1, _NONE, _output(0, _argument(0, 36, 24))),
        inputs=(_argument(0, 0, 24), _argument(0, 24, 4), _argument(0, 28, 8, 1, 2)),
        pools=(_SHARED,),
    ),
    "no alignment": _output(1, _argument(1, 25, 39)),
}


@pytest.mark.parametrize("name", VALID_REQUESTS)
def test_valid(name: str) -> None:
    validate_request(VALID_REQUESTS[name], INPUTS, OUTPUTS)


def test_fenced_with_outputs_fully_specified_by_model_or_request() -> None:
    validate_request(_output(1, _argument(1, 24, 40)), INPUTS, WHOLE, fenced=True)
    validate_request(_output(1, _argument(1, 24, 40, 2, 5)), INPUTS, OUTPUTS, fenced=True)


def test_lengths_of_extension_types_are_not_compared() -> None:
    operand = Operand(EXTENSION, (3,), lifetime=INPUT)
    validate_request(Request((_argument(0, 0, 5),), (), (_GIVEN,)), (operand,), ())
    validate_request(Request((_argument(0, 0, 5, 3),), (), (_GIVEN,)), (operand,), ())
