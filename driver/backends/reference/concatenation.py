"""Kernels of CONCATENATION, SPLIT, PACK and TILE."""

from collections.abc import Sequence

import numpy as np

from driver.backends.reference.fixed_point import RANGES
from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, Operand, OperandType, OperationType


@kernel(OperationType.CONCATENATION)
def concatenation(call: Call) -> AnyArray:
    """The inputs one after the other along the axis, each on the output's scale."""
    return np.concatenate([_on_output_scale(call, name) for name in call.repeated("input")], call.integer("axis"))


def _on_output_scale(call: Call, name: str) -> AnyArray:
    operand, output = call.operand(name), call.operand("output")
    array = call.array(name)
    if (operand.scale, operand.zero_point) == (output.scale, output.zero_point):
        return array
    table = call.once(f"table of {name}", lambda: _rescaled_values(operand, output))
    taken: AnyArray = table[array.astype(np.intp) - RANGES[OperandType(operand.type)][0]]
    return taken


def _rescaled_values(operand: Operand, output: Operand) -> AnyArray:
    """For every stored value from the smallest on: the value that stands for the same real number in the output.

    float32 throughout, counted from the smallest stored value; a result that is no number gives the smallest.
    """
    low, high = RANGES[OperandType(output.type)]
    x = np.arange(high - low + 1, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.float32(operand.scale) * (np.float32(1) / np.float32(output.scale))
        real = x * ratio + np.float32(low - operand.zero_point) * ratio
        stored = np.trunc(real + np.copysign(np.float32(0.5), real)) + np.float32(output.zero_point)
    table: AnyArray = np.fmin(np.fmax(stored, low), high).astype(DTYPES[output.type])
    return table


@kernel(OperationType.SPLIT)
def split(call: Call) -> Sequence[AnyArray]:
    """Equal parts along the axis."""
    return np.split(call.array("input"), call.integer("num_splits"), call.axis(len(call.shape("input"))))


@kernel(OperationType.PACK)
def pack(call: Call) -> AnyArray:
    """The inputs stacked along a new dimension."""
    return np.stack([call.array(name) for name in call.repeated("input")], call.integer("axis"))


@kernel(OperationType.TILE)
def tile(call: Call) -> AnyArray:
    """The input repeated along each dimension."""
    return np.tile(call.array("input"), call.vector("multiples"))
