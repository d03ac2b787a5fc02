"""EMBEDDING_LOOKUP and HASHTABLE_LOOKUP."""

from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperationType


@converter(OperationType.EMBEDDING_LOOKUP, checked_by_engine="lookups")
def embedding_lookup(lower: Lowering) -> None:
    """A GATHER along the first dimension, which takes all types; the engine checks lookups that are not constant."""
    inputs = [lower.input("values"), lower.input("lookups")]
    lower.emit("GATHER", inputs, [lower.output(like=lower.spec("values"))], "GatherOptions", axis=0)
