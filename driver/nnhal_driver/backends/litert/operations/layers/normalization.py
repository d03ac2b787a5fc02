"""Converters of L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import KernelLimits
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter


@converter(OperationType.L2_NORMALIZATION, limits=KernelLimits(has_own_scale=True))
def l2_normalization(lower: Lowering) -> None:
    """Move the axis last, as the engine requires."""
    axis = lower.call.axis(len(lower.shape("input")))
    x = lower.axis_to_last(lower.input("input"), axis)
    lower.emit("L2_NORMALIZATION", [x], [lower.output_from_last(axis)], "L2NormOptions")


@converter(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(lower: Lowering) -> None:
    """Move the axis last and reshape to rank 4, as the engine requires."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    x = lower.axis_to_last(lower.input("input"), axis)
    rank_4 = (*(1,) * (4 - len(shape)), *lower.writer.shapes[x])
    numbers = {name: lower.call.number(name) for name in ("bias", "alpha", "beta")}
    radius = min(lower.call.integer("radius"), shape[axis])
    image = lower.reshape(x, rank_4)
    out = lower.apply(lower.operation_name, [image], lower.options_name, radius=radius, **numbers)
    lower.copy(out, lower.output_from_last(axis))


@converter(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(lower: Lowering) -> None:
    """Emit (x - mean) * gamma / sqrt(variance + epsilon) + beta, operator by operator."""
    gamma, beta, epsilon = (lower.constant(lower.call.number(n), FLOAT) for n in ("gamma", "beta", "epsilon"))
    x = lower.image_input()
    centered = lower.apply("SUB", [x, _mean(lower, x)], "SubOptions")
    variance = _mean(lower, lower.apply("MUL", [centered, centered], "MulOptions"))
    root = lower.apply("RSQRT", [lower.apply("ADD", [variance, epsilon], "AddOptions")])
    scaled = lower.apply("MUL", [centered, lower.apply("MUL", [root, gamma], "MulOptions")], "MulOptions")
    lower.emit("ADD", [scaled, beta], [lower.image_output()], "AddOptions")


def _mean(lower: Lowering, image: int) -> int:
    """Return the mean of each channel: [batches, 1, 1, channels]."""
    batches, _, _, channels = lower.writer.shapes[image]
    out = lower.writer.tensor(FLOAT, (batches, 1, 1, channels))
    lower.emit("MEAN", [image, lower.constant([1, 2])], [out], "ReducerOptions", keep_dims=True)
    return out
