"""Shapes of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import require_output_quantization, shape_rule


@shape_rule(OperationType.L2_NORMALIZATION, empty=False, rank_4=True)
def l2_normalization(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape = call.shape("input")
    call.axis(len(shape))
    require_output_quantization(call)
    return [shape]


@shape_rule(OperationType.LOCAL_RESPONSE_NORMALIZATION, empty=False, rank_4=True)
def local_response_normalization(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape = call.shape("input")
    radius = call.integer("radius")
    call.axis(len(shape))
    call.require(radius >= 0, f"radius is {radius}; it must be at least 0")
    return [shape]


@shape_rule(OperationType.INSTANCE_NORMALIZATION, empty=False)
def instance_normalization(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape = call.shape("input")
    call.require(len(shape) == 4, f"input has rank {len(shape)}; it must be 4")
    return [shape]


@multiply_adds(OperationType.LOCAL_RESPONSE_NORMALIZATION, of=("input", "radius"))
def neighborhood_work(shape: Shape, radius: int) -> int:
    """Count the neighbors of each element."""
    return prod(shape) * (2 * min(radius, max(shape)) + 1)
