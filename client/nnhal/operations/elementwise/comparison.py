"""Comparisons with broadcasting: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

for _type in (
    OperationType.EQUAL,
    OperationType.NOT_EQUAL,
    OperationType.LESS,
    OperationType.LESS_EQUAL,
    OperationType.GREATER,
    OperationType.GREATER_EQUAL,
):
    signature(
        _type,
        inputs="x:T y:T",
        outputs="output:TENSOR_BOOL8",
        types="""
            T
            TENSOR_BOOL8
            TENSOR_FLOAT32
            TENSOR_FLOAT16
            TENSOR_INT32
            TENSOR_QUANT8_ASYMM
            TENSOR_QUANT8_ASYMM_SIGNED
        """,
        elementwise=True,
    )
