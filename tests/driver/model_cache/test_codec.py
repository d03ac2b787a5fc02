"""JSON codec of canonical types."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from nnhal.types import (
    DataLocation,
    ExtensionParams,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationPlacement,
    Partition,
    Placement,
    Refusal,
    Subgraph,
    SymmPerChannelQuantParams,
    UnsetUnion,
)
from nnhal_driver.model_cache.codec import decode, encode

SUBGRAPH = Subgraph(
    (
        Operand(OperandType.TENSOR_FLOAT32, (0, 3), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(6, (1,), float(np.float32(0.1)), -128, 2, DataLocation(1, 2, 3, 4)),
        Operand(11, (2,), extra_params=SymmPerChannelQuantParams((0.5, float(np.float32(1e-11))), 1)),
        Operand(0x10001, (), float("inf"), extra_params=ExtensionParams(b"\0\xff")),
        Operand(extra_params=UnsetUnion()),
    ),
    (Operation(0, (0, 1), (2,)),),
    (0,),
    (),
)
PLACEMENT = Placement((Partition(0, "CpuRef", (0,)),), (OperationPlacement(0, 0, 1, "", (Refusal("a", "„b“", "c"),)),))


@pytest.mark.parametrize("value", [SUBGRAPH, PLACEMENT])
def test_round_trip(value: object) -> None:
    assert decode(type(value), json.loads(json.dumps(encode(type(value), value)))) == value


def test_numpy_numbers_become_python_numbers() -> None:
    operand = decode(Operand, json.loads(json.dumps(encode(Operand, Operand(0, (np.int64(3),), np.float32(0.5))))))  # type: ignore[arg-type]
    assert operand == Operand(0, (3,), 0.5)
    assert type(operand.dimensions[0]) is int


def test_unknown_types_are_rejected() -> None:
    @dataclass(frozen=True)
    class Unknown:
        value: object

    with pytest.raises(TypeError, match="has no form"):
        encode(Unknown, Unknown(1))
