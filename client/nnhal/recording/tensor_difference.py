"""Differences between two runs of a model, operation by operation, and the tolerances for them.

A client can read the operands between operations only if they are outputs, so a second model makes them outputs. This
prevents an engine from fusing operations, so it may compute differently than for the model itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nnhal.client.elements import dequantize
from nnhal.types import AnyArray, Model, Operand, OperandLifeTime, OperandType, type_name

STEPS, ULP, ONES = "steps", "ULP", "of 1"
EXACT = (0.0, 0.0)
HALF = (5 * 2.0**-10, 5 * 2.0**-10)
TOLERANCES = {"TENSOR_FLOAT32": (1e-5, 5 * 2.0**-23), "TENSOR_FLOAT16": HALF}
"""(atol, rtol) by operand type. Other types are exact, unless values have been rounded."""

_UNITS: Mapping[int, str] = {
    OperandType.TENSOR_FLOAT32: ULP,
    OperandType.FLOAT32: ULP,
    OperandType.TENSOR_FLOAT16: ULP,
    OperandType.FLOAT16: ULP,
}


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """Differences between the elements of two arrays. It is true if there are any.

    Attributes:
        unit: "ULP" for floating point, "steps" of quantization, "of 1" for other integers, such as numbers of classes.
        maximum: the maximum over all elements; infinite if only one is NaN, or the shapes differ.
        mean: the mean over all elements; infinite in the same cases.
        absolute: the largest difference of real values.
        relative: that in proportion to the largest real value of the expected ones.
        share: share of the elements that differ.
    """

    unit: str
    maximum: float
    mean: float
    absolute: float
    relative: float
    share: float

    @property
    def is_rounding(self) -> bool:
        """True if the values differ no more than roundings do: by one step, or by a thousandth of the largest value."""
        return self.maximum <= 1 if self.unit == STEPS else self.unit == ULP and self.relative <= 1e-3

    def __bool__(self) -> bool:
        return self.maximum > 0


def expose_intermediates(model: Model) -> Model:
    """Return the model with every temporary operand of main as an output too, after its own outputs."""
    main = model.main
    written = [o for operation in main.operations for o in operation.outputs]
    intermediates = [o for o in written if main.operands[o].lifetime == OperandLifeTime.TEMPORARY_VARIABLE]
    operands = list(main.operands)
    for o in intermediates:
        operands[o] = replace(operands[o], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    exposed = replace(main, operands=tuple(operands), output_indexes=(*main.output_indexes, *intermediates))
    return replace(model, main=exposed, output_names=())


def isolate_operations(model: Model) -> Model:
    """Return the model of `expose_intermediates` in which operations read the values of others from further inputs.

    The further inputs come after those of the model, one for each operand that an operation writes, in the order of
    the exposed outputs. So an error of one operation does not reach the next one.
    """
    exposed = expose_intermediates(model)
    main = exposed.main
    copies = {o: len(main.operands) + i for i, o in enumerate(main.output_indexes)}
    operands = [
        *main.operands,
        *(replace(main.operands[o], lifetime=OperandLifeTime.SUBGRAPH_INPUT) for o in main.output_indexes),
    ]
    operations = tuple(replace(each, inputs=tuple(copies.get(i, i) for i in each.inputs)) for each in main.operations)
    inputs = (*main.input_indexes, *copies.values())
    isolated = replace(main, operands=tuple(operands), operations=operations, input_indexes=inputs)
    return replace(exposed, main=isolated, input_names=())


def measure_difference(actual: AnyArray, expected: AnyArray, operand: Operand) -> TensorDifference:
    """Measure the difference between two values of an operand."""
    unit = _UNITS.get(operand.type, STEPS if operand.scale else ONES)
    if actual.shape != expected.shape:
        return TensorDifference(unit, float("inf"), float("inf"), float("inf"), float("inf"), 1.0)
    if actual.size == 0:
        return TensorDifference(unit, 0.0, 0.0, 0.0, 0.0, 0.0)
    with np.errstate(invalid="ignore"):  # inf - inf
        values = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    distances = _ulp_distances(actual, expected) if unit == ULP else values
    absolute = float(np.nanmax(np.where(distances == 0, 0.0, values), initial=0.0)) * (operand.scale or 1.0)
    magnitude = float(np.nanmax(np.abs(dequantize(operand, expected).astype(np.float64)), initial=0.0))
    relative = absolute / magnitude if magnitude else float("inf") if absolute else 0.0
    share = np.count_nonzero(distances) / distances.size
    return TensorDifference(unit, float(distances.max()), float(distances.mean()), absolute, relative, share)


def first_difference(
    type_: int, actual: AnyArray, expected: AnyArray, tolerance: tuple[float, float]
) -> tuple[str, str] | None:
    """Return the first element outside the tolerance, as text: what was expected and got. Return None without one.

    The condition is |actual - expected| <= atol + rtol * |expected|, in double precision, on the stored values of an
    operand of a type. An infinity is only equal to itself.
    """
    atol, rtol = tolerance
    expected_values = expected.astype(np.float64).ravel()
    actual_values = actual.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):
        tolerances = atol + rtol * np.abs(expected_values)
        is_near = (np.abs(actual_values - expected_values) <= tolerances) & np.isfinite(expected_values)
        wrong = ~(is_near | (actual_values == expected_values))
    if not wrong.any():
        return None
    first = int(wrong.argmax())
    index = [int(i) for i in np.unravel_index(first, expected.shape)]
    return (
        f"{type_name(type_)} element {index} = {expected_values[first]:.9g} within {tolerances[first]:.3g}",
        f"{actual_values[first]:.9g} ({int(wrong.sum())} of {wrong.size} elements differ)",
    )


def _ulp_distances(actual: AnyArray, expected: AnyArray) -> npt.NDArray[np.float64]:
    """Return how many numbers of the type lie between each pair of elements; infinite between a NaN and a number."""
    distances = np.asarray(np.abs(_rank(actual) - _rank(expected)), np.float64)
    distances[np.isnan(actual) != np.isnan(expected)] = np.inf
    distances[np.isnan(actual) & np.isnan(expected)] = 0.0
    return distances


def _rank(array: AnyArray) -> npt.NDArray[np.int64]:
    """Return the rank of each number among all numbers of its type. Both zeros have the same rank."""
    bits = 8 * array.itemsize
    raw = np.ascontiguousarray(array).reshape(array.shape).view(f"i{array.itemsize}").astype(np.int64)
    below_zero = -(raw + 2 ** (bits - 1))
    return np.asarray(np.where(raw >= 0, raw, below_zero), np.int64)
