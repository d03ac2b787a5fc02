"""Tensors filled with one value: FILL."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.FILL,
    inputs="dims:SHAPE value:S",
    types="""
        S        T
        FLOAT32  TENSOR_FLOAT32
        FLOAT16  TENSOR_FLOAT16
        INT32    TENSOR_INT32
    """,
)
