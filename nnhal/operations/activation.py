"""Activations: SOFTMAX."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.SOFTMAX,
    inputs="input:T beta:S [axis]",
    outputs="output:T",
    types="""
        T                           S
        TENSOR_FLOAT32              FLOAT32
        TENSOR_FLOAT16              FLOAT16
        TENSOR_QUANT8_ASYMM         FLOAT32
        TENSOR_QUANT8_ASYMM_SIGNED  FLOAT32
    """,
    ranks={"input": (1, 4)},
)
