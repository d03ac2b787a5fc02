"""Shapes of FILL."""

from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule
from nnhal_driver.validation.rank import check_rank


@shape_rule(OperationType.FILL, empty=False)
def fill(call: OperationCall) -> list[Shape]:
    """Return the values of `dims`."""
    check_rank(prod(call.shape("dims")), f"{call.view.name}: output 0")
    shape = call.vector("dims")
    call.require(min(shape) >= 0, f"dims {shape} has a negative value")
    return [tuple(shape)]
