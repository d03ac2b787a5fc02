"""Padding: PAD, PAD_V2, MIRROR_PAD."""

from nnhal.operations.check import rank_difference, same_quantization
from nnhal.operations.signature import FLOATS_INT32_QUANT8, FLOATS_QUANT8, Arguments, signature
from nnhal.types import OperationType

signature(
    OperationType.PAD,
    inputs="input:T paddings:SHAPE",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)

signature(
    OperationType.PAD_V2,
    inputs="input:T paddings:SHAPE pad_value:S",
    types="""
        T                           S
        TENSOR_FLOAT32              FLOAT32
        TENSOR_FLOAT16              FLOAT16
        TENSOR_QUANT8_ASYMM         INT32
        TENSOR_QUANT8_ASYMM_SIGNED  INT32
    """,
    ranks={"input": (1, 4)},
    quantization="input",
)


def _check_paddings_shape(arguments: Arguments) -> str | None:
    """Check that `paddings` has one row for each dimension of the input, and two columns, where these are known."""
    shape, rank = arguments["paddings"].dimensions, len(arguments["input"].dimensions)
    if shape and shape[1] not in (0, 2):
        return f"paddings has shape {list(shape)}; its second dimension must be 2"
    if shape and shape[0] and rank and shape[0] != rank:
        return f"paddings has {shape[0]} rows; input has rank {rank}"
    return None


signature(
    OperationType.MIRROR_PAD,
    inputs="input:T paddings:SHAPE mode",
    types=FLOATS_INT32_QUANT8,
    ranks={"paddings": 2},
    checks=[_check_paddings_shape, rank_difference(0)],
    scale_checks=[same_quantization()],
    quantization="input",
)
