"""Shapes of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

from driver.operations.call import Call, Shape
from driver.operations.shape import fixed_output, limit_rank, shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.L2_NORMALIZATION, empty=False)
def l2_normalization(call: Call) -> list[Shape]:
    """As the input."""
    shape = call.shape("input")
    limit_rank(call, "input")
    call.axis(len(shape))
    fixed_output(call)
    return [shape]


@shape_rule(OperationType.LOCAL_RESPONSE_NORMALIZATION, empty=False)
def local_response_normalization(call: Call) -> list[Shape]:
    """As the input."""
    shape = call.shape("input")
    radius = call.integer("radius")
    limit_rank(call, "input")
    call.axis(len(shape))
    call.require(radius >= 0, f"radius is {radius}; it must be at least 0")
    return [shape]


@shape_rule(OperationType.INSTANCE_NORMALIZATION, empty=False)
def instance_normalization(call: Call) -> list[Shape]:
    """As the input."""
    shape = call.shape("input")
    call.require(len(shape) == 4, f"input has rank {len(shape)}; it must be 4")
    return [shape]
