"""Arithmetic of two tensors with broadcasting: ADD."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.ADD,
    inputs="input0:T input1:T activation",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_INT32
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"input0": (1, 4), "input1": (1, 4)},
)
