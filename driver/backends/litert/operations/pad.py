"""PAD, PAD_V2 and MIRROR_PAD."""

from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperationType


def _paddings(lower: Lowering) -> int:
    return lower.constant(lower.call.array("paddings"))


@converter(OperationType.PAD)
def pad(lower: Lowering) -> None:
    """With real 0."""
    lower.emit("PAD", [lower.input("input"), _paddings(lower)], [lower.output(like=lower.spec("input"))])


@converter(OperationType.PAD_V2)
def pad_v2(lower: Lowering) -> None:
    """The value, a scalar of its own type in NNAPI, is a tensor of the data's type."""
    spec = lower.spec("input")
    value = lower.constant(lower.call.array("pad_value"), spec)
    lower.emit("PADV2", [lower.input("input"), _paddings(lower), value], [lower.output(like=spec)])


@converter(OperationType.MIRROR_PAD)
def mirror_pad(lower: Lowering) -> None:
    """The modes have the same numbers."""
    mode = lower.call.integer("mode")
    inputs = [lower.input("input"), _paddings(lower)]
    lower.emit("MIRROR_PAD", inputs, [lower.output(like=lower.spec("input"))], "MirrorPadOptions", mode=mode)
