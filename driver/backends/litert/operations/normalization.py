"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

from driver.backends.litert.limits import Limits
from driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal.types import OperationType


@converter(OperationType.L2_NORMALIZATION, limits=Limits(own_scale=True))
def l2_normalization(lower: Lowering) -> None:
    """The engine's axis is the last."""
    axis = lower.call.axis(len(lower.shape("input")))
    x = lower.last(lower.input("input"), axis)
    lower.emit("L2_NORMALIZATION", [x], [lower.output_from_last(axis)], "L2NormOptions")


@converter(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(lower: Lowering) -> None:
    """The engine's axis is the last of four."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    x = lower.last(lower.input("input"), axis)
    moved = lower.writer.shapes[x]
    four = (*(1,) * (4 - len(shape)), *moved)
    numbers = {name: lower.call.number(name) for name in ("bias", "alpha", "beta")}
    radius = min(lower.call.integer("radius"), shape[axis])
    out = lower.made("LOCAL_RESPONSE_NORMALIZATION", [lower.reshape(x, four)], _LRN_OPTIONS, radius=radius, **numbers)
    lower.copy(out, lower.output_from_last(axis))


_LRN_OPTIONS = "LocalResponseNormalizationOptions"


@converter(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(lower: Lowering) -> None:
    """(x - mean) * gamma / sqrt(variance + epsilon) + beta, operator by operator."""
    gamma, beta, epsilon = (lower.constant(lower.call.number(n), FLOAT) for n in ("gamma", "beta", "epsilon"))
    x = lower.image()
    centred = lower.made("SUB", [x, _mean(lower, x)], "SubOptions")
    variance = _mean(lower, lower.made("MUL", [centred, centred], "MulOptions"))
    root = lower.made("RSQRT", [lower.made("ADD", [variance, epsilon], "AddOptions")])
    scaled = lower.made("MUL", [centred, lower.made("MUL", [root, gamma], "MulOptions")], "MulOptions")
    lower.emit("ADD", [scaled, beta], [lower.image_output()], "AddOptions")


def _mean(lower: Lowering, image: int) -> int:
    """Of each channel, as [batches, 1, 1, channels]."""
    batches, _, _, channels = lower.writer.shapes[image]
    out = lower.temporary(FLOAT, (batches, 1, 1, channels))
    lower.emit("MEAN", [image, lower.constant([1, 2])], [out], "ReducerOptions", keepDims=True)
    return out
