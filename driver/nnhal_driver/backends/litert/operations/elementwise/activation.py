"""Converters of RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX and LOG_SOFTMAX."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS, KernelLimits
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter

_OPERATORS = {
    OperationType.RELU: "RELU",
    OperationType.RELU1: "RELU_N1_TO_1",
    OperationType.RELU6: "RELU6",
    OperationType.LOGISTIC: "LOGISTIC",
    OperationType.TANH: "TANH",
    OperationType.HARD_SWISH: "HARD_SWISH",
}
_STEEPEST = 2.0
"""Largest input scale. From 4 on, NNAPI's integer arithmetic only gives the ends of the curve."""


@converter(OperationType.RELU, OperationType.RELU1, OperationType.RELU6)
@converter(
    OperationType.LOGISTIC, OperationType.TANH, limits=KernelLimits(has_own_scale=True, max_input_scale=_STEEPEST)
)
@converter(OperationType.HARD_SWISH, limits=ELEMENTWISE_LIMITS)
def simple(lower: Lowering) -> None:
    """Emit one operator."""
    lower.emit(_OPERATORS[OperationType(lower.call.view.type)], [lower.input("input")], [lower.output()])


@converter(OperationType.ELU, limits=ELEMENTWISE_LIMITS)
def elu(lower: Lowering) -> None:
    """Emit a sum of alpha * ELU(min(x, 0)) and max(x, 0), because the engine's alpha is 1."""
    alpha, x = lower.call.number("alpha"), lower.input("input")
    if alpha == 1:
        lower.emit("ELU", [x], [lower.output()])
        return
    below = lower.apply("ELU", [lower.apply("MINIMUM", [x, lower.constant(0.0, FLOAT)])])
    scaled = lower.apply("MUL", [below, lower.constant(alpha, FLOAT)], "MulOptions")
    lower.emit("ADD", [lower.apply("RELU", [x]), scaled], [lower.output()], "AddOptions")


@converter(OperationType.PRELU, limits=KernelLimits(product_of=("input", "alpha"), output_copies_first=True))
def prelu(lower: Lowering) -> None:
    """Emit the same operator."""
    lower.emit("PRELU", [lower.input("input"), lower.input("alpha")], [lower.output()])


@converter(OperationType.SOFTMAX, limits=KernelLimits(has_own_scale=True))
def softmax(lower: Lowering) -> None:
    """Move the axis last, as the engine requires."""
    axis = lower.call.axis(len(lower.shape("input")))
    x = lower.axis_to_last(lower.input("input"), axis)
    lower.emit("SOFTMAX", [x], [lower.output_from_last(axis)], "SoftmaxOptions", beta=lower.call.number("beta"))


@converter(OperationType.LOG_SOFTMAX, limits=KernelLimits(rank=5))
def log_softmax(lower: Lowering) -> None:
    """Move the axis last and multiply by beta: the engine's beta is 1."""
    axis, beta = lower.call.axis(len(lower.shape("logits"))), lower.call.number("beta")
    x = lower.axis_to_last(lower.input("logits"), axis)
    if beta != 1:
        x = lower.apply("MUL", [x, lower.constant(beta, FLOAT)], "MulOptions")
    lower.emit("LOG_SOFTMAX", [x], [lower.output_from_last(axis)], "LogSoftmaxOptions")
