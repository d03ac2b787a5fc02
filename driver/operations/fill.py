"""Shapes of FILL."""

from driver.operations.call import Call, Shape
from driver.operations.shape import shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.FILL, empty=False)
def fill(call: Call) -> list[Shape]:
    """The values of `dims`."""
    shape = call.vector("dims")
    call.require(min(shape) >= 0, f"dims {shape} has a negative value")
    return [tuple(shape)]
