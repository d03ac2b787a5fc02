"""Shapes of comparisons: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL."""

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import broadcast_shape, shape_rule


@shape_rule(
    OperationType.EQUAL,
    OperationType.NOT_EQUAL,
    OperationType.LESS,
    OperationType.LESS_EQUAL,
    OperationType.GREATER,
    OperationType.GREATER_EQUAL,
    empty=False,
)
def comparison(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return [broadcast_shape(call, "x", "y")]
