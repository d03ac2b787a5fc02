"""Kernels of CONCATENATION, SPLIT, PACK and TILE."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import DTYPES, AnyArray, Operand, OperationType
from nnhal_driver.backends.division import look_up
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.backends.reference.numerics.fixed_point import RANGES
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.CONCATENATION)
def concatenation(call: OperationCall) -> AnyArray:
    """Join the inputs along the axis, each on the output's scale."""
    return np.concatenate([_to_output_scale(call, name) for name in call.repeated("input")], call.integer("axis"))


def _to_output_scale(call: OperationCall, name: str) -> AnyArray:
    operand, output = call.operand(name), call.operand("output")
    array = call.array(name)
    if (operand.scale, operand.zero_point) == (output.scale, output.zero_point):
        return array
    table = call.memoize_constant(f"table of {name}", lambda: _rescale_table(operand, output))
    rescaled: AnyArray = look_up(table, array.astype(np.intp) - RANGES[operand.type][0])
    return rescaled


def _rescale_table(operand: Operand, output: Operand) -> AnyArray:
    """Return, for every stored value in ascending order, the output's stored value of the same real number.

    The arithmetic is float32, relative to the smallest stored value. NaN gives the smallest stored value.
    """
    low, high = RANGES[output.type]
    x = np.arange(high - low + 1, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.float32(operand.scale) * (np.float32(1) / np.float32(output.scale))
        real = x * ratio + np.float32(low - operand.zero_point) * ratio
        stored = np.trunc(real + np.copysign(np.float32(0.5), real)) + np.float32(output.zero_point)
    table: AnyArray = np.fmin(np.fmax(stored, low), high).astype(DTYPES[output.type])
    return table


@kernel(OperationType.SPLIT)
def split(call: OperationCall) -> Sequence[AnyArray]:
    """Split the input into equal parts along the axis."""
    return np.split(call.array("input"), call.integer("num_splits"), call.axis(len(call.shape("input"))))


@kernel(OperationType.PACK)
def pack(call: OperationCall) -> AnyArray:
    """Stack the inputs along a new dimension."""
    return np.stack([call.array(name) for name in call.repeated("input")], call.integer("axis"))


@kernel(OperationType.TILE)
def tile(call: OperationCall) -> AnyArray:
    """Repeat the input along each dimension."""
    return np.tile(call.array("input"), call.vector("multiples"))
