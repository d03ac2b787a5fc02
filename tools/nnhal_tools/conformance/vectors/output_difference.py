"""Comparison of outputs with the expectations of a vector (checklist 3.8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.types import AnyArray, type_name
from nnhal_tools.conformance.vectors.case import Case, ExpectedOutput


@dataclass(frozen=True)
class OutputDifference:
    """First wrong element of an output, as text."""

    expected: str
    got: str


def first_difference(expected: ExpectedOutput, actual: AnyArray) -> OutputDifference | None:
    """Return the first element outside the tolerance, or None.

    The condition is |actual - expected| <= atol + rtol * |expected|, in double precision, on the stored values.
    """
    if expected.ignored:
        return None
    expected_values = expected.array.astype(np.float64).ravel()
    actual_values = actual.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):
        tolerances = expected.atol + expected.rtol * np.abs(expected_values)
        wrong = ~(np.abs(actual_values - expected_values) <= tolerances)
    if not wrong.any():
        return None
    first = int(wrong.argmax())
    index = [int(i) for i in np.unravel_index(first, expected.array.shape)]
    return OutputDifference(
        f"{type_name(expected.type)} element {index} = {expected_values[first]:.9g} within {tolerances[first]:.3g}",
        f"{actual_values[first]:.9g} ({int(wrong.sum())} of {wrong.size} elements differ)",
    )


def multinomial_difference(case: Case, outputs: Sequence[AnyArray]) -> str | None:
    """Compare the class frequencies of RANDOM_MULTINOMIAL with the softmax of its input, and return the worst one.

    Return None if all are within the tolerance, or the vector is of another operation.
    """
    tolerance = case.multinomial_tolerance
    logits = case.inputs[0]
    if tolerance is None or logits is None:
        return None
    powers = np.exp(logits.astype(np.float64).ravel())
    expected = powers / powers.sum()
    actual = np.bincount(outputs[0].ravel().astype(np.int64), minlength=expected.size) / outputs[0].size
    worst = int(np.abs(actual - expected).argmax())
    if abs(actual[worst] - expected[worst]) <= tolerance:
        return None
    return f"class {worst} has frequency {actual[worst]:.4f}, expected {expected[worst]:.4f} within {tolerance}"
