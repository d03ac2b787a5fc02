"""Converters of PAD, PAD_V2 and MIRROR_PAD."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


def _paddings(lower: Lowering) -> int:
    return lower.constant(lower.call.array("paddings"))


@converter(OperationType.PAD)
def pad(lower: Lowering) -> None:
    """Pad with real 0."""
    lower.emit("PAD", [lower.input("input"), _paddings(lower)], [lower.output(like=lower.spec("input"))])


@converter(OperationType.PAD_V2)
def pad_v2(lower: Lowering) -> None:
    """Pass the value, a scalar in NNAPI, as a tensor of the data's type."""
    spec = lower.spec("input")
    value = lower.constant(lower.call.array("pad_value"), spec)
    lower.emit("PADV2", [lower.input("input"), _paddings(lower), value], [lower.output(like=spec)])


@converter(OperationType.MIRROR_PAD)
def mirror_pad(lower: Lowering) -> None:
    """Pass the mode as an option. TFLite's modes have the same numbers."""
    mode = lower.call.integer("mode")
    inputs = [lower.input("input"), _paddings(lower)]
    lower.emit("MIRROR_PAD", inputs, [lower.output(like=lower.spec("input"))], "MirrorPadOptions", mode=mode)
