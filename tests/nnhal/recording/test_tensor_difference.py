"""Differences between tensors in ULP and in quantization steps, and models whose intermediates are outputs."""

import numpy as np
import pytest

from nnhal.recording.tensor_difference import STEPS, ULP, expose_intermediates, measure_difference
from nnhal.types import Operand, OperandLifeTime, OperandType
from nnhal_tools.cli.model import load_model
from tests.tools.cli.command import DIGITS

FLOAT = Operand(OperandType.TENSOR_FLOAT32, (4,))
HALF = Operand(OperandType.TENSOR_FLOAT16, (4,))
QUANT = Operand(OperandType.TENSOR_QUANT8_ASYMM, (4,), scale=0.5, zero_point=3)


def test_floats_are_compared_in_ulp() -> None:
    ours = np.array([1.0, -1.0, 0.0, 1e-45], np.float32)
    theirs = np.array([np.nextafter(np.float32(1), np.float32(2)), -1.0, -0.0, -1e-45], np.float32)
    difference = measure_difference(ours, theirs, FLOAT)
    assert (difference.unit, difference.maximum, difference.mean) == (ULP, 2.0, 0.75)
    assert difference.absolute == np.float32(2**-23)


def test_half_floats_have_their_own_ulp() -> None:
    ours = np.array([1.0, 2.0, 3.0, 4.0], np.float16)
    difference = measure_difference(ours, ours + np.float16(2**-8), HALF)
    assert difference.maximum == 4.0


@pytest.mark.parametrize(("ours", "theirs", "maximum"), [(np.nan, np.nan, 0), (np.nan, 1, np.inf), (np.inf, np.inf, 0)])
def test_nan_is_equal_only_to_nan(ours: float, theirs: float, maximum: float) -> None:
    actual, expected = np.full(4, ours, np.float32), np.full(4, theirs, np.float32)
    assert measure_difference(actual, expected, FLOAT).maximum == maximum


def test_quantized_values_are_compared_in_steps() -> None:
    difference = measure_difference(np.array([0, 3, 255, 9], np.uint8), np.array([2, 3, 0, 9], np.uint8), QUANT)
    assert (difference.unit, difference.maximum, difference.mean, bool(difference)) == (STEPS, 255.0, 64.25, True)


def test_difference_of_other_shapes_is_infinite() -> None:
    assert measure_difference(np.zeros(3, np.uint8), np.zeros(4, np.uint8), QUANT).maximum == np.inf


def test_intermediates_become_outputs() -> None:
    model = load_model(DIGITS)
    exposed = expose_intermediates(model).main
    written = {o for operation in exposed.operations for o in operation.outputs}
    assert exposed.output_indexes[: len(model.main.output_indexes)] == model.main.output_indexes
    assert set(exposed.output_indexes) == written and len(written) > len(model.main.output_indexes)
    assert OperandLifeTime.TEMPORARY_VARIABLE not in {operand.lifetime for operand in exposed.operands}
    assert exposed.operations == model.main.operations


def test_absolute_and_relative_error_and_share_are_of_real_values() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM, (4,), 0.5, 10)
    difference = measure_difference(np.array([10, 14, 20, 30], np.uint8), np.array([10, 14, 22, 30], np.uint8), operand)
    assert (difference.absolute, difference.relative, difference.share) == (1, 0.1, 0.25)
    assert not difference.is_rounding
    difference = measure_difference(np.array([1, 2000], np.float32), np.array([1, 2001], np.float32), FLOAT)
    assert difference.absolute == 1 and difference.share == 0.5 and difference.is_rounding


def test_numbers_of_classes_are_not_steps() -> None:
    operand = Operand(OperandType.TENSOR_INT32, (2,))
    difference = measure_difference(np.array([3, 5], np.int32), np.array([3, 6], np.int32), operand)
    assert difference.unit == "of 1" and difference.share == 0.5 and not difference.is_rounding
