"""Shapes of FILL."""

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule


@shape_rule(OperationType.FILL, empty=False)
def fill(call: OperationCall) -> list[Shape]:
    """Return the values of `dims`."""
    shape = call.vector("dims")
    call.require(min(shape) >= 0, f"dims {shape} has a negative value")
    return [tuple(shape)]
