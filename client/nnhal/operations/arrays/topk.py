"""The largest elements: TOPK_V2."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.TOPK_V2,
    inputs="input:T k",
    outputs="values:T indices:TENSOR_INT32",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_INT32
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    quantization="input",
)
