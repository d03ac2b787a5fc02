"""Signed variants of quant8 vectors."""

import base64

import numpy as np
import pytest

from nnhal.types import DTYPES, AnyArray, OperandType
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import builtin_case
from nnhal_tools.conformance.vectors.signed_variant import SUFFIX, signed_variant


def test_signed_variant() -> None:
    case = builtin_case("add_quant8")
    variant = signed_variant(case)
    assert variant is not None
    assert variant.name == case.name + SUFFIX
    assert set(variant.operand_types) == {"TENSOR_QUANT8_ASYMM_SIGNED", "INT32"}
    operands = variant.data["model"]["main"]["operands"]
    assert [o["zero_point"] for o in operands] == [-118, 0, 0, -78]
    for before, after in zip(case.inputs, variant.inputs, strict=True):
        assert before is not None and after is not None
        np.testing.assert_array_equal(after, before.astype(int) - 128)
    np.testing.assert_array_equal(variant.outputs[0].array, case.outputs[0].array.astype(int) - 128)
    weights = signed_variant(builtin_case("depthwise_quant8"))
    assert weights is not None
    before, after = (_constant(c, 1) for c in (builtin_case("depthwise_quant8"), weights))
    np.testing.assert_array_equal(after, before.astype(int) - 128)


def _constant(case: Case, operand: int) -> AnyArray:
    entry = case.data["model"]["main"]["operands"][operand]
    return np.frombuffer(base64.b64decode(entry["data"]), DTYPES[OperandType[entry["type"]]])


@pytest.mark.parametrize("name", ["add_float", "network", "conv_per_channel", "gather_out_of_range"])
def test_case_without_variant(name: str) -> None:
    assert signed_variant(builtin_case(name)) is None


def test_operation_without_variant() -> None:
    graph = CaseGraph()
    graph.apply(
        "CAST", [graph.input("TENSOR_QUANT8_ASYMM", (2,), 1.0)], [graph.output("TENSOR_QUANT8_ASYMM", (2,), 1.0)]
    )
    assert signed_variant(make_case("cast", graph, [[1, 2]], [[1, 2]])) is None
