"""Shapes of comparisons: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL."""

from driver.operations.call import Call, Shape
from driver.operations.shape import broadcast, shape_rule
from nnhal.types import OperationType


@shape_rule(
    OperationType.EQUAL,
    OperationType.NOT_EQUAL,
    OperationType.LESS,
    OperationType.LESS_EQUAL,
    OperationType.GREATER,
    OperationType.GREATER_EQUAL,
    empty=False,
)
def comparison(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return [broadcast(call, "x", "y")]
