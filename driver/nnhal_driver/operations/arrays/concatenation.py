"""Shapes of CONCATENATION, SPLIT, PACK and TILE."""

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import require_max_rank, require_same_quantization, shape_rule


@shape_rule(OperationType.CONCATENATION)
def concatenation(call: OperationCall) -> list[Shape]:
    """Return the shape of the inputs, with their lengths along the axis added up."""
    shapes = {name: call.shape(name) for name in call.repeated("input")}
    first = shapes["input0"]
    axis = call.integer("axis")
    require_max_rank(call, "input0")
    call.require(0 <= axis < len(first), f"axis is {axis}; it must be in 0..{len(first) - 1}")
    before, after = first[:axis], first[axis + 1 :]
    for name, shape in shapes.items():
        call.require(
            len(shape) == len(first) and shape[:axis] == before and shape[axis + 1 :] == after,
            f"{name} has shape {list(shape)}, input0 {list(first)}; they may only differ along axis {axis}",
        )
    return [(*before, sum(shape[axis] for shape in shapes.values()), *after)]


@shape_rule(OperationType.SPLIT, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def split(call: OperationCall) -> list[Shape]:
    """Return the shape of the input, with its length along the axis divided by the number of outputs."""
    outputs, splits, shape = call.repeated("output"), call.integer("num_splits"), call.shape("input")
    if splits != len(outputs):
        message = f"num_splits is {splits}; the operation has {len(outputs)} outputs"
        raise call.failure(message, status=ErrorStatus.INVALID_ARGUMENT)
    axis = call.axis(len(shape))
    call.require(
        shape[axis] % splits == 0, f"input has length {shape[axis]} along the axis, not a multiple of {splits}"
    )
    for output in outputs:
        require_same_quantization(call, output=output)
    return [(*shape[:axis], shape[axis] // splits, *shape[axis + 1 :])] * splits


@shape_rule(OperationType.PACK, empty=False)
def pack(call: OperationCall) -> list[Shape]:
    """Return the shape of the inputs, with a dimension of their number inserted at the axis."""
    shapes = {name: call.shape(name) for name in call.repeated("input")}
    first = shapes["input0"]
    axis = call.integer("axis")
    call.require(0 <= axis <= len(first), f"axis is {axis}; it must be in 0..{len(first)}")
    for name, shape in shapes.items():
        call.require(shape == first, f"{name} has shape {list(shape)}, input0 {list(first)}; they must be equal")
    return [(*first[:axis], len(shapes), *first[axis:])]


@shape_rule(OperationType.TILE, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def tile(call: OperationCall) -> list[Shape]:
    """Return the shape of the input, with each dimension times its multiple."""
    shape = call.shape("input")
    multiples = call.vector("multiples", len(shape))
    call.require(min(multiples) >= 0, f"multiples {multiples} has a negative value")
    return [tuple(size * multiple for size, multiple in zip(shape, multiples, strict=True))]
