"""V-WIRE: one invalid model per case."""

from dataclasses import replace

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, OperandType, SymmPerChannelQuantParams, UnsetUnion
from nnhal_driver.validation.model import validate_model
from tests.driver.validation.models import (
    ADDITION,
    BRANCH,
    ModelCase,
    adding,
    edited,
    spare,
    with_location,
    with_operand,
    with_operation,
)

_NEGATIVE_CHANNEL = SymmPerChannelQuantParams((1.0,), -1)

CASES = [
    ModelCase("V-WIRE-01", with_operand(ADDITION, 3, type=-1), "operand 3 of main (operand type -1) has a negative"),
    ModelCase("V-WIRE-01", with_operation(ADDITION, 1, type=-1), "operation 1 of main (operation type -1) has a"),
    ModelCase("V-WIRE-02", with_operand(ADDITION, 3, type=10000), "operand 3 of main (operand type 10000)"),
    ModelCase("V-WIRE-02", with_operand(ADDITION, 3, type=10001), "operand 3 of main (operand type 10001)"),
    ModelCase("V-WIRE-02", with_operation(ADDITION, 0, type=10000), "operation 0 of main (operation type 10000)"),
    ModelCase("V-WIRE-03", with_operand(ADDITION, 3, dimensions=(2, -3)), "has dimension -3, must be >= 0"),
    ModelCase("V-WIRE-03", with_operation(ADDITION, 0, inputs=(0, -1, 2)), "(ADD) has input index -1"),
    ModelCase("V-WIRE-03", with_operation(ADDITION, 0, outputs=(-3,)), "(ADD) has output index -3"),
    ModelCase("V-WIRE-03", edited(ADDITION, input_indexes=(-1,)), "main has input index -1"),
    ModelCase("V-WIRE-03", edited(BRANCH, 2, output_indexes=(-1,)), "referenced subgraph 1 has output index -1"),
    ModelCase("V-WIRE-04", with_location(ADDITION, 4, pool_index=-1), "has pool index -1"),
    ModelCase("V-WIRE-04", with_location(ADDITION, 4, offset=-1), "has offset -1, must be 0 to 4294967295"),
    ModelCase("V-WIRE-04", with_location(ADDITION, 4, length=2**32), "has length 4294967296"),
    ModelCase("V-WIRE-04", with_location(ADDITION, 4, padding=-1), "has padding -1"),
    ModelCase(
        "V-WIRE-05",
        spare(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, (1,), extra_params=_NEGATIVE_CHANNEL),
        "operand 6 of main (TENSOR_QUANT8_SYMM_PER_CHANNEL) has channel dimension -1",
    ),
    ModelCase("V-WIRE-06", with_operand(ADDITION, 3, lifetime=7), "has lifetime 7, must be 0 to 6"),
    ModelCase("V-WIRE-06", with_operand(ADDITION, 3, lifetime=-1), "has lifetime -1"),
    ModelCase("V-WIRE-07", with_operand(ADDITION, 3, extra_params=UnsetUnion()), "extra parameters of an unknown kind"),
    ModelCase("V-WIRE-07", replace(ADDITION, pools=(UnsetUnion(),)), "model pool 0 is of an unknown kind"),
    ModelCase(
        "V-WIRE-07", adding(BRANCH, spare(0, extra_params=UnsetUnion()).main.operands[6], number=1), "referenced"
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_broken_rule_is_named(case: ModelCase) -> None:
    with pytest.raises(HalError) as caught:
        validate_model(case.model)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, case.rule)
    assert case.reason in caught.value.reason


def test_ranges_are_checked_before_other_rules() -> None:
    broken = with_location(edited(BRANCH, operations=()), 0, 2, offset=-1)
    with pytest.raises(HalError) as caught:
        validate_model(broken)
    assert caught.value.rule == "V-WIRE-04"
