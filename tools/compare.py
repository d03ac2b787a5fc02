"""How far two runs of a model are apart, operation by operation.

The operands between operations can only be seen from outside when they are outputs, so a second model is made in which
they are. That keeps an engine from joining operations: it may compute otherwise than it does for the model itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nnhal.types import AnyArray, Model, Operand, OperandLifeTime, OperandType

STEPS, ULP = "steps", "ULP"

_UNITS: Mapping[int, str] = {
    OperandType.TENSOR_FLOAT32: ULP,
    OperandType.FLOAT32: ULP,
    OperandType.TENSOR_FLOAT16: ULP,
    OperandType.FLOAT16: ULP,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays are apart.

    Attributes:
        unit: "ULP" for floating point, "steps" of quantisation (or of 1) for integers.
        maximum, mean: over all elements; infinite where a NaN meets a number, or the shapes differ.
        largest: the largest difference of values, as they are stored.
    """

    unit: str
    maximum: float
    mean: float
    largest: float

    def __bool__(self) -> bool:
        return self.maximum > 0


def looking_inside(model: Model) -> Model:
    """The model with every temporary operand of main as an output too, behind its own outputs."""
    main = model.main
    written = [o for operation in main.operations for o in operation.outputs]
    inner = [o for o in written if main.operands[o].lifetime == OperandLifeTime.TEMPORARY_VARIABLE]
    operands = list(main.operands)
    for o in inner:
        operands[o] = replace(operands[o], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    opened = replace(main, operands=tuple(operands), output_indexes=(*main.output_indexes, *inner))
    return replace(model, main=opened, output_names=())


def difference(ours: AnyArray, theirs: AnyArray, operand: Operand) -> Difference:
    """How far two values of an operand are apart."""
    unit = _UNITS.get(operand.type, STEPS)
    if ours.shape != theirs.shape:
        return Difference(unit, float("inf"), float("inf"), float("inf"))
    if ours.size == 0:
        return Difference(unit, 0.0, 0.0, 0.0)
    apart = _ulp(ours, theirs) if unit == ULP else np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    with np.errstate(invalid="ignore"):  # inf - inf
        values = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    largest = float(np.nanmax(np.where(apart == 0, 0.0, values), initial=0.0))
    return Difference(unit, float(apart.max()), float(apart.mean()), largest)


def _ulp(ours: AnyArray, theirs: AnyArray) -> npt.NDArray[np.float64]:
    """How many numbers of the type lie between; a NaN is as far as can be from every number."""
    places = np.asarray(np.abs(_place(ours) - _place(theirs)), np.float64)
    places[np.isnan(ours) != np.isnan(theirs)] = np.inf
    places[np.isnan(ours) & np.isnan(theirs)] = 0.0
    return places


def _place(array: AnyArray) -> npt.NDArray[np.int64]:
    """The place of each number in the order of all numbers of its type; both zeros have the same."""
    bits = 8 * array.itemsize
    raw = np.ascontiguousarray(array).reshape(array.shape).view(f"i{array.itemsize}").astype(np.int64)
    below_zero = -(raw + 2 ** (bits - 1))
    return np.asarray(np.where(raw >= 0, raw, below_zero), np.int64)
