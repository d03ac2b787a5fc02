"""`nnhal compare`: differences in the units that backends' authors count in, and where they begin."""

import json

import numpy as np
import pytest

from nnhal.types import OperandLifeTime, OperandType, OperationType
from tests.driver.one_operation import tensor
from tests.tools.test_cli import DIGITS, MODELS, fails, invoke
from tools.cli.model import load
from tools.compare import STEPS, ULP, difference, looking_inside

FLOAT = tensor(OperandType.TENSOR_FLOAT32, (4,))
HALF = tensor(OperandType.TENSOR_FLOAT16, (4,))
QUANT = tensor(OperandType.TENSOR_QUANT8_ASYMM, (4,), scale=0.5, zero_point=3)


def test_floats_are_compared_in_units_of_the_last_place() -> None:
    ours = np.array([1.0, -1.0, 0.0, 1e-45], np.float32)
    theirs = np.array([np.nextafter(np.float32(1), np.float32(2)), -1.0, -0.0, -1e-45], np.float32)
    found = difference(ours, theirs, FLOAT)
    assert (found.unit, found.maximum, found.mean) == (ULP, 2.0, 0.75)
    assert found.largest == np.float32(2**-23)


def test_half_floats_have_their_own_last_place() -> None:
    ours = np.array([1.0, 2.0, 3.0, 4.0], np.float16)
    found = difference(ours, ours + np.float16(2**-8), HALF)
    assert found.maximum == 4.0


@pytest.mark.parametrize(("ours", "theirs", "maximum"), [(np.nan, np.nan, 0), (np.nan, 1, np.inf), (np.inf, np.inf, 0)])
def test_a_nan_is_equal_to_a_nan_alone(ours: float, theirs: float, maximum: float) -> None:
    one, other = np.full(4, ours, np.float32), np.full(4, theirs, np.float32)
    assert difference(one, other, FLOAT).maximum == maximum


def test_quantised_values_are_compared_in_steps() -> None:
    found = difference(np.array([0, 3, 255, 9], np.uint8), np.array([2, 3, 0, 9], np.uint8), QUANT)
    assert (found.unit, found.maximum, found.mean, bool(found)) == (STEPS, 255.0, 64.25, True)


def test_other_shapes_are_as_far_as_can_be() -> None:
    assert difference(np.zeros(3, np.uint8), np.zeros(4, np.uint8), QUANT).maximum == np.inf


def test_looking_inside_makes_outputs_of_all_temporaries() -> None:
    model = load(DIGITS)
    inside = looking_inside(model).main
    written = {o for operation in inside.operations for o in operation.outputs}
    assert inside.output_indexes[: len(model.main.output_indexes)] == model.main.output_indexes
    assert set(inside.output_indexes) == written and len(written) > len(model.main.output_indexes)
    assert OperandLifeTime.TEMPORARY_VARIABLE not in {operand.lifetime for operand in inside.operands}
    assert inside.operations == model.main.operations


def test_a_backend_is_equal_to_itself() -> None:
    result = invoke("compare", DIGITS, "--backend", "CpuRef")
    assert result.exit_code == 0, result.output
    assert "equal everywhere" in result.stdout
    assert "as it is, output" in result.stdout


def test_the_first_operation_that_differs_is_named() -> None:
    if not MODELS.is_dir():
        pytest.skip("../shared/models is not present")
    result = invoke("compare", MODELS / "vww_96_int8.tflite", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    rows = found["inside"]
    assert [row["type"] for row in rows][:2] == [OperationType.CONV_2D.name, OperationType.DEPTHWISE_CONV_2D.name]
    assert {row["backend"] for row in rows} == {"CpuAcc"}
    assert any(0 < row["maximum"] < 16 and row["unit"] == STEPS for row in rows)
    shown = invoke("compare", MODELS / "vww_96_int8.tflite").stdout
    first = next(row for row in rows if row["maximum"] > 0)
    assert f"they differ from operation {first['operation']} ({first['type']}) on" in shown


def test_a_backend_that_is_not_there_is_named() -> None:
    fails(invoke("compare", DIGITS, "--backend", "Nobody"), 1, "Nobody")
