"""Shapes of activations: SOFTMAX."""

from driver.operations.call import Call, Shape
from driver.operations.shape import shape_rule
from nnhal.types import OperandType, OperationType

_SOFTMAX_OUTPUT = {
    OperandType.TENSOR_QUANT8_ASYMM: (1 / 256, 0),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128),
}


def axis_of(call: Call, rank: int, default: int = -1) -> int:
    """The argument `axis`, counted from the start.

    Raises:
        HalError: GENERAL_FAILURE: it is outside [-rank, rank).
    """
    axis = call.integer("axis", default)
    call.require(-rank <= axis < rank, f"axis is {axis}; it must be in {-rank}..{rank - 1}")
    return axis % rank


@shape_rule(OperationType.SOFTMAX)
def softmax(call: Call) -> list[Shape]:
    """As the input."""
    shape, input_, output = call.shape("input"), call.operand("input"), call.operand("output")
    beta = call.number("beta")
    call.require(1 <= len(shape) <= 4, f"input has rank {len(shape)}; it must be 1 to 4")
    call.require(beta > 0, f"beta is {beta:g}; it must be > 0")
    axis_of(call, len(shape))
    if output.type in _SOFTMAX_OUTPUT:
        scale, zero_point = _SOFTMAX_OUTPUT[OperandType(output.type)]
        if (output.scale, output.zero_point) != (scale, zero_point):
            raise call.failure(f"output must have scale 1/256 and zero point {zero_point}", "V-RUN-05")
        call.require(beta * input_.scale * 2**26 > 1, "beta * input scale is too small")
    return [shape]
