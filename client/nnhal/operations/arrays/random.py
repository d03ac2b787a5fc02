"""Sampling and hashing: RANDOM_MULTINOMIAL, LSH_PROJECTION."""

from nnhal.operations.signature import FLOATS, signature
from nnhal.types import OperationType

signature(
    OperationType.RANDOM_MULTINOMIAL,
    inputs="logits:T num_samples seeds:TENSOR_INT32",
    outputs="samples:TENSOR_INT32",
    types=FLOATS,
)

signature(
    OperationType.LSH_PROJECTION,
    inputs="hash:H input:I weight:H? type",
    outputs="output:TENSOR_INT32",
    types="""
        H                              I
        TENSOR_FLOAT32|TENSOR_FLOAT16  TENSOR_FLOAT32|TENSOR_FLOAT16|TENSOR_INT32|TENSOR_QUANT8_ASYMM
    """,
)
