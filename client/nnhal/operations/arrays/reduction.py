"""Reductions along axes: MEAN, REDUCE_ALL, _ANY, _MAX, _MIN, _PROD, _SUM, and ARGMAX, ARGMIN."""

from nnhal.operations.signature import FLOATS, FLOATS_QUANT8, signature
from nnhal.types import OperationType

_BOOL = """
    T
    TENSOR_BOOL8
"""

signature(
    OperationType.MEAN,
    inputs="input:T axes:SHAPE keep_dims",
    types=FLOATS_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)

for _type, _types in {
    OperationType.REDUCE_ALL: _BOOL,
    OperationType.REDUCE_ANY: _BOOL,
    OperationType.REDUCE_MAX: FLOATS_QUANT8,
    OperationType.REDUCE_MIN: FLOATS_QUANT8,
    OperationType.REDUCE_PROD: FLOATS,
    OperationType.REDUCE_SUM: FLOATS,
}.items():
    signature(
        _type,
        inputs="input:T axes:SHAPE keep_dims:BOOL",
        types=_types,
        ranks={"input": (1, 4)},
        quantization="input" if _types is FLOATS_QUANT8 else None,
    )

for _type in (OperationType.ARGMAX, OperationType.ARGMIN):
    signature(
        _type,
        inputs="input:T axis",
        outputs="output:TENSOR_INT32",
        types=f"""
            {FLOATS_QUANT8}
            TENSOR_INT32
        """,
    )
