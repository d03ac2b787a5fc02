"""Boolean logic: LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT."""

from nnhal.operations.signature import FLOATS_INT32_QUANT8, signature
from nnhal.types import OperationType

for _type in (OperationType.LOGICAL_AND, OperationType.LOGICAL_OR):
    signature(_type, inputs="x:TENSOR_BOOL8 y:TENSOR_BOOL8", outputs="output:TENSOR_BOOL8", elementwise=True)

signature(OperationType.LOGICAL_NOT, inputs="input:TENSOR_BOOL8", outputs="output:TENSOR_BOOL8", elementwise=True)

signature(
    OperationType.SELECT,
    inputs="condition:TENSOR_BOOL8 if_true:T if_false:T",
    types=FLOATS_INT32_QUANT8,
    elementwise=True,
)
