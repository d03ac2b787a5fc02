"""Functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from nnhal.operations.signature import FLOATS, signature
from nnhal.types import OperationType

for _type in (OperationType.EXP, OperationType.LOG, OperationType.SIN, OperationType.SQRT):
    signature(_type, inputs="input:T", types=FLOATS, elementwise=True)

signature(OperationType.FLOOR, inputs="input:T", types=FLOATS, ranks={"input": (1, 4)}, elementwise=True)

for _type in (OperationType.ABS, OperationType.NEG):
    signature(_type, inputs="input:T", types=FLOATS + "TENSOR_INT32", elementwise=True)

signature(
    OperationType.RSQRT,
    inputs="input:T",
    types=FLOATS + "TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED",
    elementwise=True,
)
