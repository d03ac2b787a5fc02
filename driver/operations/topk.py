"""Shapes of TOPK_V2."""

from driver.operations.call import Call, Shape
from driver.operations.shape import fixed_quantization, same_quantization, shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.TOPK_V2, empty=False)
def topk_v2(call: Call) -> list[Shape]:
    """As the input, with k as last dimension; the same for the indices."""
    same_quantization(call, output="values")
    fixed_quantization(call, "indices", 0.0, 0)
    *rest, last = call.shape("input")
    k = call.integer("k")
    call.require(1 <= k <= last, f"k is {k}; it must be in 1..{last}")
    return [(*rest, k), (*rest, k)]
