"""The largest elements: TOPK_V2."""

from nnhal.operations.signature import FLOATS_INT32_QUANT8, signature
from nnhal.types import OperationType

signature(
    OperationType.TOPK_V2,
    inputs="input:T k",
    outputs="values:T indices:TENSOR_INT32",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)
