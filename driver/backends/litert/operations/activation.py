"""RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX and LOG_SOFTMAX."""

from driver.backends.litert.limits import ELEMENTWISE, Limits
from driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal.types import OperationType

_OPERATORS = {
    OperationType.RELU: "RELU",
    OperationType.RELU1: "RELU_N1_TO_1",
    OperationType.RELU6: "RELU6",
    OperationType.LOGISTIC: "LOGISTIC",
    OperationType.TANH: "TANH",
    OperationType.HARD_SWISH: "HARD_SWISH",
}
_STEEPEST = 2.0
"""From a scale of 4 on NNAPI's integers know only the ends of the curve."""


@converter(OperationType.RELU, OperationType.RELU1, OperationType.RELU6)
@converter(OperationType.LOGISTIC, OperationType.TANH, limits=Limits(own_scale=True, steepest=_STEEPEST))
@converter(OperationType.HARD_SWISH, limits=ELEMENTWISE)
def simple(lower: Lowering) -> None:
    """One operator each."""
    lower.emit(_OPERATORS[OperationType(lower.call.view.type)], [lower.input("input")], [lower.output()])


@converter(OperationType.ELU, limits=ELEMENTWISE)
def elu(lower: Lowering) -> None:
    """The engine's alpha is 1: alpha * elu(min(x, 0)) + max(x, 0) is another alpha's."""
    alpha, x = lower.call.number("alpha"), lower.input("input")
    if alpha == 1:
        lower.emit("ELU", [x], [lower.output()])
        return
    below = lower.made("ELU", [lower.made("MINIMUM", [x, lower.constant(0.0, FLOAT)])])
    scaled = lower.made("MUL", [below, lower.constant(alpha, FLOAT)], "MulOptions")
    lower.emit("ADD", [lower.made("RELU", [x]), scaled], [lower.output()], "AddOptions")


@converter(OperationType.PRELU, limits=Limits(product=("input", "alpha"), copies=True))
def prelu(lower: Lowering) -> None:
    """The same operands in the same order."""
    lower.emit("PRELU", [lower.input("input"), lower.input("alpha")], [lower.output()])


@converter(OperationType.SOFTMAX, limits=Limits(own_scale=True))
def softmax(lower: Lowering) -> None:
    """The engine's axis is the last."""
    axis = lower.call.axis(len(lower.shape("input")))
    x = lower.last(lower.input("input"), axis)
    lower.emit("SOFTMAX", [x], [lower.output_from_last(axis)], "SoftmaxOptions", beta=lower.call.number("beta"))


@converter(OperationType.LOG_SOFTMAX, limits=Limits(rank=5))
def log_softmax(lower: Lowering) -> None:
    """The engine's axis is the last and its beta 1."""
    axis, beta = lower.call.axis(len(lower.shape("logits"))), lower.call.number("beta")
    x = lower.last(lower.input("logits"), axis)
    if beta != 1:
        x = lower.made("MUL", [x, lower.constant(beta, FLOAT)], "MulOptions")
    lower.emit("LOG_SOFTMAX", [x], [lower.output_from_last(axis)], "LogSoftmaxOptions")
