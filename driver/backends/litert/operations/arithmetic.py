"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM and POW."""

from math import prod

from driver.backends.litert.limits import Limits
from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperandType, OperationType

_FUSED = {
    OperationType.ADD: ("ADD", "AddOptions"),
    OperationType.SUB: ("SUB", "SubOptions"),
    OperationType.MUL: ("MUL", "MulOptions"),
}
_EXTREMES = {OperationType.MAXIMUM: "MAXIMUM", OperationType.MINIMUM: "MINIMUM"}


@converter(OperationType.ADD, OperationType.SUB)
@converter(OperationType.MUL, limits=Limits(product=("input0", "input1")))
def fused(lower: Lowering) -> None:
    """The same operands in the same order."""
    operator, options = _FUSED[OperationType(lower.call.view.type)]
    inputs = [_of_full_rank(lower, name) for name in ("input0", "input1")]
    lower.emit(operator, inputs, [lower.output()], options, fusedActivationFunction=lower.call.activation())


def _of_full_rank(lower: Lowering, name: str) -> int:
    """An argument; with the output's shape, where it lacks only leading dimensions of 1.

    With quantised values, a fused activation and a constant of one element the engine's output has the rank of the
    other argument, whatever the rank of the constant.
    """
    tensor, shape = lower.input(name), lower.shape("output")
    return lower.reshape(tensor, shape) if prod(lower.shape(name)) == prod(shape) else tensor


@converter(OperationType.DIV)
def div(lower: Lowering) -> None:
    """NNAPI's division of integers rounds down."""
    inputs = [lower.input("dividend"), lower.input("divisor")]
    if lower.type("output") == OperandType.TENSOR_INT32:
        lower.emit("FLOOR_DIV", inputs, [lower.output()])
    else:
        activation = lower.call.activation()
        lower.emit("DIV", inputs, [lower.output()], "DivOptions", fusedActivationFunction=activation)


@converter(*_EXTREMES)
def extremes(lower: Lowering) -> None:
    """The engine wants all operands quantised alike."""
    inputs = [lower.as_spec(lower.input(name), lower.spec("output")) for name in ("input0", "input1")]
    lower.emit(_EXTREMES[OperationType(lower.call.view.type)], inputs, [lower.output()])


@converter(OperationType.POW)
def pow_(lower: Lowering) -> None:
    """The same operands in the same order."""
    lower.emit("POW", [lower.input("base"), lower.input("exponent")], [lower.output()])
