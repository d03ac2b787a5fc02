"""Padding: PAD, PAD_V2, MIRROR_PAD."""

from nnhal.operations.check import rank_difference, same_quantization
from nnhal.operations.signature import Arguments, signature
from nnhal.types import OperationType

signature(
    OperationType.PAD,
    inputs="input:T paddings:TENSOR_INT32",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"input": (1, 4)},
    quantization="input",
)

signature(
    OperationType.PAD_V2,
    inputs="input:T paddings:TENSOR_INT32 pad_value:S",
    outputs="output:T",
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


def _pairs(arguments: Arguments) -> str | None:
    """Paddings have a row for each dimension of the input and two columns, where these are known."""
    found, rank = arguments["paddings"].dimensions, len(arguments["input"].dimensions)
    if found and found[1] not in (0, 2):
        return f"paddings has shape {list(found)}; its second dimension must be 2"
    if found and found[0] and rank and found[0] != rank:
        return f"paddings has {found[0]} rows; input has rank {rank}"
    return None


signature(
    OperationType.MIRROR_PAD,
    inputs="input:T paddings:TENSOR_INT32 mode",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_INT32
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"paddings": 2},
    checks=[_pairs, same_quantization(), rank_difference(0)],
    quantization="input",
)
