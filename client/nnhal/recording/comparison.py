"""Comparison of outputs with recorded ones, by the rules of the conformance harness."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from nnhal.recording.tensor_difference import (
    EXACT,
    HALF,
    TOLERANCES,
    TensorDifference,
    first_difference,
    measure_difference,
)
from nnhal.types import AnyArray, Model, Operand, OperandType

_ONE_STEP = (1.0, 0.0)
RECORDED_TOLERANCES: Mapping[str, tuple[float, float]] = {
    **TOLERANCES,
    "TENSOR_QUANT8_ASYMM": _ONE_STEP,
    "TENSOR_QUANT8_ASYMM_SIGNED": _ONE_STEP,
    "TENSOR_QUANT8_SYMM": _ONE_STEP,
    "TENSOR_QUANT16_ASYMM": _ONE_STEP,
    "TENSOR_QUANT16_SYMM": _ONE_STEP,
}
"""(atol, rtol) by operand type, on stored values. Recorded values round, so quantized ones may differ by one step."""


class Agreement(StrEnum):
    """Agreement of a repeated execution with its record. SKIPPED: there is nothing to compare it with."""

    EQUAL = "equal"
    WITHIN = "within tolerance"
    DIFFERENT = "different"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class OutputDifference:
    """Difference between an output and the recorded one, which may be within the tolerance.

    Attributes:
        output: index of the output.
        measured: how much they differ.
        expected, got: the first element outside of the tolerance, as text; "" if all are within.
    """

    output: int
    measured: TensorDifference
    expected: str = ""
    got: str = ""

    @property
    def is_allowed(self) -> bool:
        """True if it is within the tolerance."""
        return not self.expected


def tolerance_of(operand: Operand, *, relaxed: bool) -> tuple[float, float]:
    """Return the absolute and the relative tolerance of an operand of a model that may be relaxed."""
    return HALF if relaxed else RECORDED_TOLERANCES.get(_type_name(operand), EXACT)


def compare_outputs(
    model: Model, operands: Sequence[int], actual: Sequence[AnyArray], expected: Sequence[AnyArray | None]
) -> Iterator[OutputDifference]:
    """Yield the differences between the values of some operands of main. Values without an expectation are left out."""
    relaxed = model.relax_computation_float32_to_float16
    for index, (number, value, wanted) in enumerate(zip(operands, actual, expected, strict=True)):
        operand = model.main.operands[number]
        if wanted is None or (value.shape == wanted.shape and value.tobytes() == wanted.tobytes()):
            continue
        value, wanted = (array.astype(np.uint8) if array.dtype == np.bool_ else array for array in (value, wanted))
        measured = measure_difference(value, wanted, operand)
        if value.shape != wanted.shape:
            yield OutputDifference(index, measured, f"shape {list(wanted.shape)}", f"shape {list(value.shape)}")
            continue
        both_nan = np.isnan(value) & np.isnan(wanted)
        value, wanted = (np.where(both_nan, array.dtype.type(0), array) for array in (value, wanted))
        tolerance = tolerance_of(operand, relaxed=relaxed)
        yield OutputDifference(index, measured, *(first_difference(operand.type, value, wanted, tolerance) or ("", "")))


def agreement_of(differences: Sequence[OutputDifference]) -> Agreement:
    """Return the agreement of outputs that have these differences."""
    if any(not each.is_allowed for each in differences):
        return Agreement.DIFFERENT
    return Agreement.WITHIN if differences else Agreement.EQUAL


def _type_name(operand: Operand) -> str:
    known = operand.type in OperandType.__members__.values()
    return OperandType(operand.type).name if known else ""
