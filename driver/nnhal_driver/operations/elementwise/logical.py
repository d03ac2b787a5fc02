"""Shapes of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import broadcast_shape, shape_rule


@shape_rule(OperationType.LOGICAL_AND, OperationType.LOGICAL_OR, empty=False)
def logical(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return [broadcast_shape(call, "x", "y")]


@shape_rule(OperationType.LOGICAL_NOT, empty=False)
def logical_not(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    return [call.shape("input")]


@shape_rule(OperationType.SELECT, empty=False)
def select(call: OperationCall) -> list[Shape]:
    """Return the shape of the condition. All three inputs have the same shape: nothing is broadcast."""
    condition_shape = call.shape("condition")
    for name in ("if_true", "if_false"):
        shape = call.shape(name)
        call.require(
            shape == condition_shape,
            f"{name} has shape {list(shape)}, condition {list(condition_shape)}; they must be equal",
        )
    return [condition_shape]
