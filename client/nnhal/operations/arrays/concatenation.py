"""Joining, splitting and repeating of tensors: CONCATENATION, SPLIT, PACK, TILE."""

from nnhal.operations.check import rank_difference, same_quantization
from nnhal.operations.signature import FLOATS_INT32_QUANT8, FLOATS_QUANT8, signature
from nnhal.types import OperationType

signature(
    OperationType.CONCATENATION,
    inputs="input:T+ axis",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
)

signature(
    OperationType.SPLIT,
    inputs="input:T axis num_splits",
    outputs="output:T+",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)

signature(
    OperationType.PACK,
    inputs="axis input:T+",
    types=FLOATS_INT32_QUANT8,
    checks=[rank_difference(1)],
    scale_checks=[same_quantization()],
    quantization="input",
)

signature(
    OperationType.TILE,
    inputs="input:T multiples:SHAPE",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)
