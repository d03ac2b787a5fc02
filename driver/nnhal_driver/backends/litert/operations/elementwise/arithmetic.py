"""Converters of ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM and POW."""

from math import prod

from nnhal.types import OperandType, OperationType
from nnhal_driver.backends.litert.limits import KernelLimits
from nnhal_driver.backends.litert.lowering import Lowering, converter, same_operator


@converter(OperationType.ADD, OperationType.SUB)
@converter(OperationType.MUL, limits=KernelLimits(product_of=("input0", "input1")))
def fused(lower: Lowering) -> None:
    """Emit the same operator."""
    inputs = [_with_full_rank(lower, name) for name in ("input0", "input1")]
    activation, options = lower.call.activation(), lower.options_name
    lower.emit(lower.operation_name, inputs, [lower.output()], options, fused_activation_function=activation)


def _with_full_rank(lower: Lowering, name: str) -> int:
    """Return an argument, reshaped to the output's shape if it lacks only leading dimensions of 1.

    Otherwise the engine's output may have a lower rank: with quantized values, a fused activation and a constant of one
    element, it has the rank of the other argument.
    """
    tensor, shape = lower.input(name), lower.shape("output")
    return lower.reshape(tensor, shape) if prod(lower.shape(name)) == prod(shape) else tensor


@converter(OperationType.DIV)
def div(lower: Lowering) -> None:
    """Emit FLOOR_DIV for integers: NNAPI rounds quotients down."""
    inputs = [lower.input("dividend"), lower.input("divisor")]
    if lower.type("output") == OperandType.TENSOR_INT32:
        lower.emit("FLOOR_DIV", inputs, [lower.output()])
    else:
        activation = lower.call.activation()
        lower.emit("DIV", inputs, [lower.output()], "DivOptions", fused_activation_function=activation)


@converter(OperationType.MAXIMUM, OperationType.MINIMUM)
def extremes(lower: Lowering) -> None:
    """Convert both inputs to the output's scale, as the engine requires."""
    inputs = [lower.as_spec(lower.input(name), lower.spec("output")) for name in ("input0", "input1")]
    lower.emit(lower.operation_name, inputs, [lower.output()])


converter(OperationType.POW)(same_operator)
