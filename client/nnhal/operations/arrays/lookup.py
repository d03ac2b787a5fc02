"""Lookup of table rows: EMBEDDING_LOOKUP, HASHTABLE_LOOKUP."""

from nnhal.operations.signature import FLOATS_INT32_QUANT8, signature
from nnhal.types import OperationType

signature(
    OperationType.EMBEDDING_LOOKUP,
    inputs="lookups:TENSOR_INT32 values:T",
    types=FLOATS_INT32_QUANT8,
    quantization="values",
)

signature(
    OperationType.HASHTABLE_LOOKUP,
    inputs="lookups:TENSOR_INT32 keys:TENSOR_INT32 values:T",
    outputs="output:T hits:TENSOR_QUANT8_ASYMM",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_INT32
        TENSOR_QUANT8_ASYMM
    """,
)
