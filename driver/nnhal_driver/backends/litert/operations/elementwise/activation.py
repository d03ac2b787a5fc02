"""Converters of RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX and LOG_SOFTMAX."""

from math import prod

from nnhal.types import FusedActivationFunc, OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS, KernelLimits
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter, same_operator

_RECTIFIERS = {
    OperationType.RELU: ("RELU", FusedActivationFunc.RELU),
    OperationType.RELU1: ("RELU_N1_TO_1", FusedActivationFunc.RELU1),
    OperationType.RELU6: ("RELU6", FusedActivationFunc.RELU6),
}
"""Operators, and the same function as part of another operator."""
_SINGLE_ELEMENTS = dict.fromkeys(("stride_h", "stride_w", "filter_height", "filter_width"), 1)
_VALID = 1
"""Number of TFLite's padding scheme without padding."""
_STEEPEST = 2.0
"""Largest input scale. From 4 on, NNAPI's integer arithmetic only gives the ends of the curve."""


@converter(*_RECTIFIERS)
def rectifier(lower: Lowering) -> None:
    """Emit the same operator. Quantized: fuse it into the operator before, or emit a pooling of single elements.

    XNNPACK fuses float32 activations itself. It has no quantized ones, but runs such a pooling as a clamp, 150 times as
    fast as the engine's own activation. All of them clamp stored values to the same limits.
    """
    operator, activation = _RECTIFIERS[OperationType(lower.call.view.type)]
    x = lower.input("input")
    if not lower.is_quantized("input"):
        lower.emit(operator, [x], [lower.output()])
        return
    if lower.has_readers("input", 1) and lower.writer.fuse_activation(x, lower.output(), activation):
        return
    shape = lower.shape("input")
    image = shape if len(shape) == 4 else (1, 1, 1, prod(shape))
    fields = {"padding": _VALID, "fused_activation_function": activation, **_SINGLE_ELEMENTS}
    lower.emit("MAX_POOL_2D", [lower.reshape(x, image)], [lower.reshaped_output(image)], "Pool2DOptions", **fields)


_SIGMOID_LIMITS = KernelLimits(has_own_scale=True, max_input_scale=_STEEPEST)
converter(OperationType.LOGISTIC, OperationType.TANH, limits=_SIGMOID_LIMITS)(same_operator)
converter(OperationType.HARD_SWISH, limits=ELEMENTWISE_LIMITS)(same_operator)
_PRELU_LIMITS = KernelLimits(product_of=("input", "alpha"), output_copies_first=True)
converter(OperationType.PRELU, limits=_PRELU_LIMITS)(same_operator)


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
