"""Functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_FLOATS = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
"""

for _type in (OperationType.EXP, OperationType.LOG, OperationType.SIN, OperationType.SQRT):
    signature(_type, inputs="input:T", outputs="output:T", types=_FLOATS, elementwise=True)

signature(
    OperationType.FLOOR, inputs="input:T", outputs="output:T", types=_FLOATS, ranks={"input": (1, 4)}, elementwise=True
)

for _type in (OperationType.ABS, OperationType.NEG):
    signature(_type, inputs="input:T", outputs="output:T", types=_FLOATS + "TENSOR_INT32", elementwise=True)

signature(
    OperationType.RSQRT,
    inputs="input:T",
    outputs="output:T",
    types=_FLOATS + "TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED",
    elementwise=True,
)
