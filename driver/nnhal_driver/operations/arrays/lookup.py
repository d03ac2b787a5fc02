"""Shapes of EMBEDDING_LOOKUP and HASHTABLE_LOOKUP."""

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import require_quantization, require_same_quantization, shape_rule


@shape_rule(OperationType.EMBEDDING_LOOKUP, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def embedding_lookup(call: OperationCall) -> list[Shape]:
    """Return the shape of the values, with the number of lookups as dimension 0."""
    require_same_quantization(call, "values")
    lookups, values = call.shape("lookups"), call.shape("values")
    call.require(len(lookups) == 1, f"lookups has rank {len(lookups)}; it must be 1")
    call.require(len(values) >= 2, f"values has rank {len(values)}; it must be at least 2")
    rows = call.array("lookups")
    low, high = int(rows.min()), int(rows.max())
    call.require(low >= 0 and high < values[0], f"lookups lie in {low}..{high}; they must be in 0..{values[0] - 1}")
    return [(*lookups, *values[1:])]


@shape_rule(OperationType.HASHTABLE_LOOKUP, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def hashtable_lookup(call: OperationCall) -> list[Shape]:
    """Return the shape of the values, with the number of lookups as dimension 0, and one hit for each lookup."""
    require_same_quantization(call, "values")
    require_quantization(call, "hits", 1.0, 0)
    lookups, keys, values = (call.shape(name) for name in ("lookups", "keys", "values"))
    call.require(len(lookups) == 1, f"lookups has rank {len(lookups)}; it must be 1")
    call.require(len(keys) == 1, f"keys has rank {len(keys)}; it must be 1")
    call.require(keys[0] == values[0], f"there are {keys[0]} keys for {values[0]} rows of values")
    return [(*lookups, *values[1:]), lookups]
