"""Moves between channels, space and batches.

DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND, CHANNEL_SHUFFLE.
"""

from nnhal.operations.signature import FLOATS_QUANT8, signature
from nnhal.types import OperationType

for _type in (OperationType.DEPTH_TO_SPACE, OperationType.SPACE_TO_DEPTH):
    signature(
        _type,
        inputs="input:T block_size [layout:BOOL]",
        types=FLOATS_QUANT8,
        quantization="input",
        batchwise=True,
    )

signature(
    OperationType.BATCH_TO_SPACE_ND,
    inputs="input:T block_size:SHAPE [layout:BOOL]",
    types=FLOATS_QUANT8,
    quantization="input",
)

signature(
    OperationType.SPACE_TO_BATCH_ND,
    inputs="input:T block_size:SHAPE paddings:SHAPE [layout:BOOL]",
    types=FLOATS_QUANT8,
    quantization="input",
)

signature(
    OperationType.CHANNEL_SHUFFLE,
    inputs="input:T num_groups axis",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)
