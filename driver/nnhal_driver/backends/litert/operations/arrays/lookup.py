"""Converter of EMBEDDING_LOOKUP."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


@converter(OperationType.EMBEDDING_LOOKUP, checked_by_engine="lookups")
def embedding_lookup(lower: Lowering) -> None:
    """Emit a GATHER along the first dimension, which takes all types. The engine checks variable lookups."""
    inputs = [lower.input("values"), lower.input("lookups")]
    lower.emit("GATHER", inputs, [lower.output(like=lower.spec("values"))], "GatherOptions", axis=0)
