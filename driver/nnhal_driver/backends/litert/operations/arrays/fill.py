"""Converter of FILL."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


@converter(OperationType.FILL)
def fill(lower: Lowering) -> None:
    """Pass dimensions and value as constants."""
    dimensions = lower.constant(list(lower.shape("output")))
    value = lower.constant(lower.call.array("value"), lower.spec("output"))
    lower.emit("FILL", [dimensions, value], [lower.output()])
