"""Selection of elements by position: SLICE, STRIDED_SLICE, GATHER, REVERSE."""

from nnhal.operations.check import rank_difference, same_quantization
from nnhal.operations.signature import FLOATS_INT32_QUANT8, FLOATS_QUANT8, Arguments, signature
from nnhal.types import OperationType


def _check_single_axis(arguments: Arguments) -> str | None:
    """Check that the tensor `axis` has one element, where its length is known."""
    dimensions = arguments["axis"].dimensions
    if dimensions and dimensions[0] not in (0, 1):
        return f"axis has {dimensions[0]} elements; it must have 1"
    return None


signature(
    OperationType.SLICE,
    inputs="input:T begin:SHAPE size:SHAPE",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)

signature(
    OperationType.STRIDED_SLICE,
    inputs="input:T begin:SHAPE end:SHAPE strides:SHAPE begin_mask end_mask shrink_axis_mask",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)

signature(
    OperationType.GATHER,
    inputs="input:T axis indices:TENSOR_INT32",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)

signature(
    OperationType.REVERSE,
    inputs="input:T axis:SHAPE",
    types=FLOATS_INT32_QUANT8,
    ranks={"axis": 1},
    checks=[_check_single_axis, rank_difference(0)],
    scale_checks=[same_quantization()],
    quantization="input",
)
