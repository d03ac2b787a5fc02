"""Comparing outputs with what a vector expects (checklist 3.8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.types import AnyArray, type_name
from tools.conformance.vectors import Case, Expected


@dataclass(frozen=True)
class Difference:
    """The first wrong element of an output, in words."""

    expected: str
    got: str


def first_difference(expected: Expected, actual: AnyArray) -> Difference | None:
    """The first element that is off by more than the tolerance; None when there is none.

    |actual - expected| <= atol + rtol * |expected|, in double precision, on the stored values.
    """
    if expected.ignored:
        return None
    wanted = expected.array.astype(np.float64).ravel()
    got = actual.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - wanted) <= expected.atol + expected.rtol * np.abs(wanted))
    if not wrong.any():
        return None
    first = int(wrong.argmax())
    place = [int(i) for i in np.unravel_index(first, expected.array.shape)]
    tolerance = expected.atol + expected.rtol * abs(wanted[first])
    return Difference(
        f"{type_name(expected.type)} element {place} = {wanted[first]:.9g} within {tolerance:.3g}",
        f"{got[first]:.9g} ({int(wrong.sum())} of {wrong.size} elements differ)",
    )


def multinomial_difference(case: Case, outputs: Sequence[AnyArray]) -> str | None:
    """Compares class frequencies of RANDOM_MULTINOMIAL with the softmax of its input; None where they agree."""
    tolerance = case.multinomial_tolerance
    logits = case.inputs[0]
    if tolerance is None or logits is None:
        return None
    powers = np.exp(logits.astype(np.float64).ravel())
    wanted = powers / powers.sum()
    got = np.bincount(outputs[0].ravel().astype(np.int64), minlength=wanted.size) / outputs[0].size
    worst = int(np.abs(got - wanted).argmax())
    if abs(got[worst] - wanted[worst]) <= tolerance:
        return None
    return f"class {worst} has frequency {got[worst]:.4f}, expected {wanted[worst]:.4f} within {tolerance}"
