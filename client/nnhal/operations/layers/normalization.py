"""Normalization: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from nnhal.operations.signature import SIGNED_UNIT_RANGE, signature
from nnhal.types import OperationType

_FLOAT_TYPES = """
    T               S
    TENSOR_FLOAT32  FLOAT32
    TENSOR_FLOAT16  FLOAT16
"""

signature(
    OperationType.L2_NORMALIZATION,
    inputs="input:T [axis]",
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_QUANT8_ASYMM
        TENSOR_QUANT8_ASYMM_SIGNED
    """,
    ranks={"input": (1, 4)},
    quantization=SIGNED_UNIT_RANGE,
)

signature(
    OperationType.LOCAL_RESPONSE_NORMALIZATION,
    inputs="input:T radius bias:S alpha:S beta:S [axis]",
    outputs="output:T",
    types=_FLOAT_TYPES,
    ranks={"input": (1, 4)},
)

signature(
    OperationType.INSTANCE_NORMALIZATION,
    inputs="input:T gamma:S beta:S epsilon:S layout:BOOL",
    outputs="output:T",
    types=_FLOAT_TYPES,
    batchwise=True,
)
