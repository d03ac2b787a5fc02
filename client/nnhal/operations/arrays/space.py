"""Moves between channels, space and batches.

DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND, CHANNEL_SHUFFLE.
"""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
    TENSOR_QUANT8_ASYMM
    TENSOR_QUANT8_ASYMM_SIGNED
"""

signature(
    OperationType.DEPTH_TO_SPACE,
    inputs="input:T block_size [layout:BOOL]",
    outputs="output:T",
    types=_TYPES,
    quantization="input",
    batchwise=True,
)

signature(
    OperationType.SPACE_TO_DEPTH,
    inputs="input:T block_size [layout:BOOL]",
    outputs="output:T",
    types=_TYPES,
    quantization="input",
    batchwise=True,
)

signature(
    OperationType.BATCH_TO_SPACE_ND,
    inputs="input:T block_size:TENSOR_INT32 [layout:BOOL]",
    outputs="output:T",
    types=_TYPES,
    quantization="input",
)

signature(
    OperationType.SPACE_TO_BATCH_ND,
    inputs="input:T block_size:TENSOR_INT32 paddings:TENSOR_INT32 [layout:BOOL]",
    outputs="output:T",
    types=_TYPES,
    quantization="input",
)

signature(
    OperationType.CHANNEL_SHUFFLE,
    inputs="input:T num_groups axis",
    outputs="output:T",
    types=_TYPES,
    ranks={"input": (1, 4)},
    quantization="input",
)
