"""The builder applies the same rules to operands as the device."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal import HalError, ModelBuilder
from nnhal.types import (
    ExtensionParams,
    Model,
    Operand,
    OperandLifeTime,
    SymmPerChannelQuantParams,
)
from nnhal.types import OperandType as T
from nnhal_driver.validation.model import validate_model
from tests.nnhal.builder.models import CHANNELS, F32, assert_rejected, relu

CONSTANT_CASES: list[tuple[str, str, Callable[[ModelBuilder], object]]] = [
    ("V-OPERAND-07", r"\(TENSOR_FLOAT32\) has scale 0\.5, must be 0", lambda b: b.constant([1.0], F32, scale=0.5)),
    (
        "V-OPERAND-07",
        r"\(TENSOR_QUANT8_SYMM_PER_CHANNEL\) has scale 1\.0, must be 0",
        lambda b: b.input(11, [2], scale=1, channel_quant=CHANNELS),
    ),
    ("V-OPERAND-08", "must be >= 0", lambda b: b.constant([1], T.TENSOR_INT32, scale=-1)),
    ("V-OPERAND-09", "must be > 0", lambda b: b.constant(np.array([1], np.uint8), T.TENSOR_QUANT8_ASYMM)),
    ("V-OPERAND-10", "must be -128 to 127", lambda b: b.input(14, [2], scale=1, zero_point=128)),
    ("V-OPERAND-10", "has zero point 1, must be 0", lambda b: b.input(F32, [2], zero_point=1)),
    ("V-OPERAND-11", "has extra parameters", lambda b: b.input(F32, [2], channel_quant=CHANNELS)),
    ("V-OPERAND-12", "has no scales per channel", lambda b: b.input(11, [2])),
    (
        "V-OPERAND-12",
        "has 2 scales for 3 channels",
        lambda b: b.input(11, [3], channel_quant=CHANNELS),
    ),
    ("V-OPERAND-03", r"\(INT32\) has rank 1, must have no dimensions", lambda b: b.constant([1, 2], T.INT32)),
    ("V-OPERAND-04", "is a constant of unknown rank", lambda b: b.constant(1, T.TENSOR_INT32)),
    ("V-OPERAND-01", r"\(operand type 16\) has a type that is not assigned, must be 0 to 15", lambda b: b.input(16)),
    (
        "V-OPERAND-02",
        "has lifetime SUBGRAPH_INPUT, must be SUBGRAPH exactly when its type is",
        lambda b: b.input(T.SUBGRAPH),
    ),
    ("V-WIRE-03", "has dimension -1, must be >= 0", lambda b: b.input(F32, [-1])),
    ("", "has a type that is not assigned, must be 0 to 15", lambda b: b.constant(1, 16)),
    ("", r"constant of main \(INT32\) is 1.5, which INT32 cannot hold", lambda b: b.constant(1.5, T.INT32)),
    ("", "300.*cannot hold", lambda b: b.constant([300], T.TENSOR_QUANT8_ASYMM, scale=1)),
    ("", "2, which BOOL cannot hold", lambda b: b.constant(2, T.BOOL)),
    ("", r"array of int64 \[1\], not of int32", lambda b: b.constant(np.array([1]), T.TENSOR_INT32)),
    ("", "does not tell its operand type", lambda b: b.constant(np.array([1], np.int8))),
    (
        "V-WIRE-04",
        "the constants would have 4294967300 bytes; a model holds at most",
        lambda b: b.constant(np.broadcast_to(np.float32(0), (2**30 + 1,))),
    ),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), CONSTANT_CASES)
def test_operand_that_breaks_a_rule_is_rejected(
    rule: str, complaint: str, build: Callable[[ModelBuilder], object]
) -> None:
    assert_rejected(lambda: build(ModelBuilder()), rule, complaint)


SCALE = st.sampled_from([0.0, 0.5, -1.0, float("nan"), float("inf")])
PARAMS = st.one_of(
    st.none(),
    st.just(ExtensionParams(b"")),
    st.builds(SymmPerChannelQuantParams, st.lists(SCALE, max_size=3).map(tuple), st.integers(0, 2)),
)
DESCRIPTION = st.builds(
    Operand,
    st.one_of(st.sampled_from(sorted(T)), st.sampled_from([16, 0xFFFF, 0x10001])),
    st.lists(st.integers(-1, 3), max_size=3).map(tuple),
    SCALE,
    st.sampled_from([0, 1, -1, -128, -129, 127, 128, 255, 256, 65535, 65536]),
    extra_params=PARAMS,
)


def rule_of_device(operand: Operand) -> str:
    """Return the rule by which the device rejects a model with such an operand."""
    b = ModelBuilder()
    _, y = relu(b)
    b.output(y)
    model = b.build()
    unused = replace(operand, lifetime=OperandLifeTime.NO_VALUE)
    invalid: Model = replace(model, main=replace(model.main, operands=(*model.main.operands, unused)))
    return broken_rule(lambda: validate_model(invalid))


def rule_of_builder(operand: Operand) -> str:
    """Return the rule by which the builder rejects an input."""
    b = ModelBuilder()
    b.extension("org.example.types")
    params = operand.extra_params
    return broken_rule(
        lambda: b.input(
            operand.type,
            operand.dimensions,
            scale=operand.scale,
            zero_point=operand.zero_point,
            channel_quant=params if isinstance(params, SymmPerChannelQuantParams) else None,
            extension_params=params.data if isinstance(params, ExtensionParams) else None,
        )
    )


def broken_rule(call: Callable[[], object]) -> str:
    try:
        call()
    except HalError as error:
        return error.rule
    return ""


@settings(max_examples=1000, deadline=None)
@given(DESCRIPTION)
def test_builder_and_device_apply_the_same_rules(operand: Operand) -> None:
    assert rule_of_builder(operand) == rule_of_device(operand)
