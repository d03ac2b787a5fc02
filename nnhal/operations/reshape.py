"""Operations that keep the elements and change the shape: RESHAPE."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.RESHAPE,
    inputs="input:T shape:TENSOR_INT32",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_INT32
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"input": (1, 4)},
)
