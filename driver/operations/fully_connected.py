"""Shapes of FULLY_CONNECTED."""

from math import prod

from driver.operations.call import Call, Shape
from driver.operations.convolution import check_bias
from driver.operations.shape import shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.FULLY_CONNECTED)
def fully_connected(call: Call) -> list[Shape]:
    """[batch_size, num_units], whatever the rank of the input."""
    weights = call.shape("weights")
    call.require(len(weights) == 2, f"weights has rank {len(weights)}; it must be 2")
    units, size = weights
    call.require(units > 0 and size > 0, f"weights has shape {list(weights)}; it must not be empty")
    elements = prod(call.shape("input"))
    call.require(elements % size == 0, f"input has {elements} elements, not a multiple of {size}")
    check_bias(call, "weights", units)
    call.activation()
    return [(elements // size, units)]
