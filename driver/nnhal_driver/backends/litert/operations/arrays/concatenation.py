"""Converters of CONCATENATION, SPLIT, PACK and TILE."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


@converter(OperationType.CONCATENATION)
def concatenation(lower: Lowering) -> None:
    """Convert all inputs to the output's scale first."""
    names = lower.call.repeated("input")
    inputs = [lower.as_spec(lower.input(name), lower.spec("output")) for name in names]
    axis = lower.call.axis(len(lower.shape("output")))
    lower.emit("CONCATENATION", inputs, [lower.output()], "ConcatenationOptions", axis=axis)


@converter(OperationType.SPLIT)
def split(lower: Lowering) -> None:
    """Pass the axis, a tensor in TFLite, as first input."""
    names = lower.call.repeated("output")
    axis = lower.constant(lower.call.axis(len(lower.shape("input"))))
    outputs = [lower.output(name, like=lower.spec("input")) for name in names]
    lower.emit("SPLIT", [axis, lower.input("input")], outputs, "SplitOptions", num_splits=len(names))


@converter(OperationType.PACK)
def pack(lower: Lowering) -> None:
    """Pass axis and number of inputs as options."""
    inputs = [lower.input(name) for name in lower.call.repeated("input")]
    axis = lower.call.integer("axis") % len(lower.shape("output"))
    lower.emit("PACK", inputs, [lower.output()], "PackOptions", axis=axis, values_count=len(inputs))


@converter(OperationType.TILE)
def tile(lower: Lowering) -> None:
    """Pass the multiples as a tensor."""
    multiples = lower.constant(lower.call.vector("multiples"))
    lower.emit("TILE", [lower.input("input"), multiples], [lower.output(like=lower.spec("input"))])
