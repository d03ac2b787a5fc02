"""Between real and quantised values: QUANTIZE, DEQUANTIZE."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.QUANTIZE,
    inputs="input:F",
    outputs="output:Q",
    types="""
        F                              Q
        TENSOR_FLOAT32|TENSOR_FLOAT16  TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED
    """,
)

signature(
    OperationType.DEQUANTIZE,
    inputs="input:Q",
    outputs="output:F",
    types="""
        Q                                                  F
        TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED     TENSOR_FLOAT32|TENSOR_FLOAT16
        TENSOR_QUANT8_SYMM|TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_FLOAT32|TENSOR_FLOAT16
    """,
    ranks={"input": (1, 4)},
)
