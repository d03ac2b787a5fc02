"""Normalization: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from nnhal.operations.signature import FLOATS_QUANT8, FLOATS_WITH_SCALARS, SIGNED_UNIT_RANGE, signature
from nnhal.types import OperationType

signature(
    OperationType.L2_NORMALIZATION,
    inputs="input:T [axis]",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
    quantization=SIGNED_UNIT_RANGE,
)

signature(
    OperationType.LOCAL_RESPONSE_NORMALIZATION,
    inputs="input:T radius bias:S alpha:S beta:S [axis]",
    types=FLOATS_WITH_SCALARS,
    ranks={"input": (1, 4)},
)

signature(
    OperationType.INSTANCE_NORMALIZATION,
    inputs="input:T gamma:S beta:S epsilon:S layout:BOOL",
    types=FLOATS_WITH_SCALARS,
    batchwise=True,
)
