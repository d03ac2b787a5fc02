"""Shapes of TOPK_V2."""

from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import SORTING, multiply_adds
from nnhal_driver.operations.shape import require_quantization, require_same_quantization, shape_rule


@shape_rule(OperationType.TOPK_V2, empty=False)
def topk_v2(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with k as last dimension, for the values and for the indices."""
    require_same_quantization(call, output="values")
    require_quantization(call, "indices", 0.0, 0)
    *rest, last = call.shape("input")
    k = call.integer("k")
    call.require(1 <= k <= last, f"k is {k}; it must be in 1..{last}")
    return [(*rest, k), (*rest, k)]


@multiply_adds(OperationType.TOPK_V2, of=("input",))
def sorting_work(shape: Shape) -> int:
    """Count the comparisons of a sort."""
    return SORTING * prod(shape)
