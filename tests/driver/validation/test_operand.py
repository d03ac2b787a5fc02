"""V-OPERAND: one invalid model per case."""

from math import inf, nan

import pytest

from nnhal.errors import HalError
from nnhal.types import DataLocation, ErrorStatus, ExtensionParams, Operand, OperandType, SymmPerChannelQuantParams
from nnhal_driver.validation.model import validate_model
from tests.driver.validation.models import (
    ADDITION,
    BRANCH,
    COPY,
    EXTENSION,
    NO_VALUE,
    POOL,
    SUBGRAPH,
    ModelCase,
    adding,
    reference,
    spare,
    tensor,
    with_location,
    with_operand,
)

T = OperandType
_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
_WITHOUT_SCALE = (T.FLOAT32, T.INT32, T.UINT32, T.BOOL, T.FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_BOOL8)
_WITH_SCALE = (
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_QUANT8_SYMM,
    T.TENSOR_QUANT16_SYMM,
    T.TENSOR_QUANT16_ASYMM,
)
_ZERO_POINTS = {
    T.TENSOR_QUANT8_ASYMM: (-1, 256),
    T.TENSOR_QUANT8_ASYMM_SIGNED: (-129, 128),
    T.TENSOR_QUANT16_ASYMM: (-1, 65536),
    T.TENSOR_QUANT8_SYMM: (-1, 1),
    T.TENSOR_QUANT16_SYMM: (-1, 1),
    T.TENSOR_INT32: (-1, 1),
    T.TENSOR_FLOAT32: (-1, 1),
    T.INT32: (-1, 1),
    EXTENSION: (-1, 1),
}

_LARGEST = (65535, 65537, 641, 6700417)
"""Elements that fill the address space to the last byte."""


def _channels(dimensions: tuple[int, ...], scales: tuple[float, ...], channel_dim: int = 0) -> ModelCase:
    params = SymmPerChannelQuantParams(scales, channel_dim)
    return ModelCase("V-OPERAND-12", spare(_PER_CHANNEL, dimensions, extra_params=params), "")


def _constant(lifetime: int, dimensions: tuple[int, ...], *location: int, type_: int = T.TENSOR_FLOAT32) -> ModelCase:
    operand = Operand(type_, dimensions, lifetime=lifetime, location=DataLocation(*location))
    return ModelCase("", adding(ADDITION, operand), "")


def _case(rule: str, reason: str, case: ModelCase) -> ModelCase:
    return ModelCase(rule, case.model, reason)


TYPE_CASES = [
    ModelCase("V-OPERAND-01", spare(16), "operand 6 of main (operand type 16) has a type that is not assigned"),
    ModelCase("V-OPERAND-01", spare(0xFFFF), "must be 0 to 15 or above 65535"),
    ModelCase("V-OPERAND-02", spare(T.SUBGRAPH), "(SUBGRAPH) has lifetime NO_VALUE"),
    ModelCase("V-OPERAND-02", spare(T.INT32, lifetime=SUBGRAPH), "(INT32) has lifetime SUBGRAPH"),
    *(
        ModelCase("V-OPERAND-03", spare(type_, (1,)), "has rank 1, must have no dimensions")
        for type_ in (T.FLOAT32, T.INT32, T.UINT32, T.BOOL, T.FLOAT16)
    ),
    ModelCase("V-OPERAND-03", adding(BRANCH, reference(0, dimensions=(1,))), "(SUBGRAPH) has rank 1"),
    _case("V-OPERAND-04", "is a constant of unknown rank", _constant(COPY, (), 0, 0, 0)),
    _case("V-OPERAND-04", "is a constant with dimension 1 of 0, must be > 0", _constant(POOL, (4, 0), 0, 0, 0)),
    _case("V-OPERAND-04", "of more than 18446744073709551615 bytes", _constant(COPY, (2**31 - 1,) * 3, 0, 0, 4)),
    _case("V-OPERAND-04", "of more than", _constant(COPY, (2**31, 2**31), 0, 0, 0)),
    _case("V-OPERAND-20", "must be 18446744073709551615", _constant(COPY, _LARGEST, 0, 0, 4, type_=T.TENSOR_BOOL8)),
    _case("V-OPERAND-04", "of more than", _constant(COPY, (2**31 - 1,) * 1_000_000, 0, 0, 4)),
]

QUANTIZATION_CASES = [
    *(
        ModelCase("V-OPERAND-07", spare(type_, scale=scale), f"has scale {scale}, must be 0")
        for type_ in (*_WITHOUT_SCALE, EXTENSION)
        for scale in (0.5, -0.5, nan)
    ),
    ModelCase(
        "V-OPERAND-07",
        spare(_PER_CHANNEL, (1,), scale=1.0, extra_params=SymmPerChannelQuantParams((1.0,))),
        "(TENSOR_QUANT8_SYMM_PER_CHANNEL) has scale 1.0",
    ),
    ModelCase("V-OPERAND-07", adding(BRANCH, reference(0, scale=1.0)), "(SUBGRAPH) has scale 1.0"),
    ModelCase("V-OPERAND-07", with_operand(ADDITION, 3, scale=0.5), "operand 3 of main (TENSOR_FLOAT32) has scale 0.5"),
    ModelCase("V-OPERAND-08", spare(T.TENSOR_INT32, scale=-1.0), "has scale -1.0, must be >= 0"),
    ModelCase("V-OPERAND-08", spare(T.TENSOR_INT32, scale=nan), "has scale nan, must be >= 0"),
    *(
        ModelCase("V-OPERAND-09", spare(type_, scale=scale), f"has scale {scale}, must be > 0")
        for type_ in _WITH_SCALE
        for scale in (0.0, -1.0, nan)
    ),
    *(
        ModelCase(
            "V-OPERAND-10",
            spare(type_, scale=1.0 if type_ in _WITH_SCALE else 0.0, zero_point=zero_point),
            f"has zero point {zero_point}, must be",
        )
        for type_, wrong in _ZERO_POINTS.items()
        for zero_point in wrong
    ),
    ModelCase("V-OPERAND-10", adding(BRANCH, reference(0, zero_point=1)), "(SUBGRAPH) has zero point 1, must be 0"),
    ModelCase("V-OPERAND-11", spare(T.TENSOR_FLOAT32, (1,), extra_params=ExtensionParams(b"")), "has extra parameters"),
    ModelCase("V-OPERAND-11", spare(T.INT32, extra_params=SymmPerChannelQuantParams(())), "has extra parameters"),
    ModelCase("V-OPERAND-12", spare(_PER_CHANNEL, (1,)), "has no scales per channel"),
    ModelCase(
        "V-OPERAND-12", spare(_PER_CHANNEL, (1,), extra_params=ExtensionParams(b"")), "has no scales per channel"
    ),
    _case("V-OPERAND-12", "has channel dimension 0 and rank 0", _channels((), (1.0,))),
    _case("V-OPERAND-12", "has channel dimension 2 and rank 2", _channels((1, 1), (1.0,), 2)),
    _case("V-OPERAND-12", "has channel dimension 1 of unknown length", _channels((2, 0), (), 1)),
    _case("V-OPERAND-12", "has 1 scales for 2 channels", _channels((2, 1), (1.0,))),
    _case("V-OPERAND-12", "has 3 scales for 2 channels", _channels((1, 2), (1.0,) * 3, 1)),
    _case("V-OPERAND-12", "has scale 0.0 for a channel", _channels((2,), (1.0, 0.0))),
    _case("V-OPERAND-12", "has scale nan for a channel", _channels((2,), (1.0, nan))),
    ModelCase(
        "V-OPERAND-13", spare(EXTENSION, extra_params=SymmPerChannelQuantParams((1.0,))), "has scales per channel"
    ),
    ModelCase("V-OPERAND-14", spare(T.FLOAT32, scale=1.0), "operand 6 of main (FLOAT32) has scale 1.0", "V-OPERAND-07"),
]

LOCATION_CASES = [
    ModelCase(
        "V-OPERAND-15", with_location(ADDITION, 1, padding=1), "operand 1 of main (TENSOR_FLOAT32) has padding 1"
    ),
    ModelCase("V-OPERAND-15", with_location(ADDITION, 0, padding=4), "has padding 4, must be 0"),
    ModelCase(
        "V-OPERAND-16", with_location(ADDITION, 0, length=24), "operand 0 of main (TENSOR_FLOAT32) has length 24"
    ),
    ModelCase("V-OPERAND-16", with_location(ADDITION, 3, offset=4), "has offset 4, must be 0"),
    ModelCase("V-OPERAND-16", with_location(ADDITION, 5, pool_index=1), "has pool index 1, must be 0"),
    ModelCase("V-OPERAND-16", spare(T.INT32, location=DataLocation(0, 0, 4)), "operand 6 of main (INT32) has length 4"),
    ModelCase("V-OPERAND-17", with_location(ADDITION, 2, pool_index=1), "has pool index 1, must be 0"),
    ModelCase(
        "V-OPERAND-17", with_location(ADDITION, 2, offset=13), "ends at byte 17 of the operand values, which has"
    ),
    ModelCase("V-OPERAND-17", with_location(ADDITION, 2, offset=2**32 - 4), "ends at byte 4294967296"),
    ModelCase("V-OPERAND-18", with_location(ADDITION, 4, pool_index=1), "has pool index 1 of 1 pools"),
    ModelCase("V-OPERAND-18", with_location(ADDITION, 4, offset=5), "ends at byte 17 of pool 0, which has 16 bytes"),
    ModelCase("V-OPERAND-19", with_location(BRANCH, 2, offset=2), "refers to subgraph 2 of 2 referenced subgraphs"),
    ModelCase("V-OPERAND-19", with_location(BRANCH, 2, length=1), "(SUBGRAPH) has length 1, must be 0"),
    ModelCase("V-OPERAND-19", with_location(BRANCH, 2, pool_index=1), "(SUBGRAPH) has pool index 1, must be 0"),
    ModelCase("V-OPERAND-20", with_location(ADDITION, 1, length=8), "has length 8, must be 12"),
    ModelCase("V-OPERAND-20", with_location(ADDITION, 4, length=0), "has length 0, must be 12"),
    ModelCase(
        "V-OPERAND-20", with_location(ADDITION, 2, length=1), "operand 2 of main (INT32) has length 1, must be 4"
    ),
    _case("V-OPERAND-20", "has length 4, must be 1", _constant(COPY, (), 0, 0, 4, type_=T.BOOL)),
]

CASES = [*TYPE_CASES, *QUANTIZATION_CASES, *LOCATION_CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_broken_rule_is_named(case: ModelCase) -> None:
    with pytest.raises(HalError) as caught:
        validate_model(case.model)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, case.raised or case.rule)
    assert case.reason in caught.value.reason


def _all_types() -> list[Operand]:
    quantized = [Operand(type_, (1,), 0.5, lifetime=NO_VALUE) for type_ in _WITH_SCALE]
    plain = [Operand(type_, lifetime=NO_VALUE) for type_ in (*_WITHOUT_SCALE, T.TENSOR_INT32, EXTENSION)]
    return [
        *plain,
        *quantized,
        Operand(_PER_CHANNEL, (3, 1), lifetime=NO_VALUE, extra_params=SymmPerChannelQuantParams((1.0, inf, 1e-30))),
        Operand(EXTENSION, (0, 2), lifetime=NO_VALUE, extra_params=ExtensionParams(b"anything")),
        Operand(T.TENSOR_INT32, (1,), 0.5, lifetime=NO_VALUE),
        Operand(T.TENSOR_QUANT8_ASYMM, (1,), inf, 255, lifetime=NO_VALUE),
        Operand(T.TENSOR_QUANT8_ASYMM_SIGNED, (1,), 1e-30, -128, lifetime=NO_VALUE),
        Operand(T.TENSOR_QUANT16_ASYMM, (1,), 1.0, 65535, lifetime=NO_VALUE),
        tensor(NO_VALUE, (2**31 - 1,) * 1000),
        Operand(EXTENSION, (), lifetime=COPY, location=DataLocation(0, 3, 13)),
    ]


@pytest.mark.parametrize("operand", _all_types(), ids=lambda operand: str(operand.type))
def test_operands_within_the_rules_pass(operand: Operand) -> None:
    validate_model(adding(ADDITION, operand))
