"""Joining, splitting and repeating of tensors: CONCATENATION, SPLIT, PACK, TILE."""

from nnhal.operations.check import rank_difference, same_quantization
from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
    TENSOR_INT32
    TENSOR_QUANT8_ASYMM
    TENSOR_QUANT8_ASYMM_SIGNED
"""

signature(
    OperationType.CONCATENATION,
    inputs="input:T+ axis",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"input": (1, 4)},
)

signature(
    OperationType.SPLIT,
    inputs="input:T axis num_splits",
    outputs="output:T+",
    types=_TYPES,
    quantization="input",
)

signature(
    OperationType.PACK,
    inputs="axis input:T+",
    outputs="output:T",
    types=_TYPES,
    checks=[same_quantization(), rank_difference(1)],
    quantization="input",
)

signature(
    OperationType.TILE,
    inputs="input:T multiples:TENSOR_INT32",
    outputs="output:T",
    types=_TYPES,
    quantization="input",
)
