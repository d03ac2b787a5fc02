"""FILL."""

from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperationType


@converter(OperationType.FILL)
def fill(lower: Lowering) -> None:
    """Dimensions and value are constants."""
    dimensions = lower.constant(list(lower.shape("output")))
    value = lower.constant(lower.call.array("value"), lower.spec("output"))
    lower.emit("FILL", [dimensions, value], [lower.output()])
