"""Shapes of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

from driver.operations.call import Call, Shape
from driver.operations.shape import broadcast, shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.LOGICAL_AND, OperationType.LOGICAL_OR, empty=False)
def logical(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return [broadcast(call, "x", "y")]


@shape_rule(OperationType.LOGICAL_NOT, empty=False)
def logical_not(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]


@shape_rule(OperationType.SELECT, empty=False)
def select(call: Call) -> list[Shape]:
    """As all three inputs: nothing is broadcast."""
    wanted = call.shape("condition")
    for name in ("if_true", "if_false"):
        shape = call.shape(name)
        call.require(shape == wanted, f"{name} has shape {list(shape)}, condition {list(wanted)}; they must be equal")
    return [wanted]
