"""Reductions along axes: MEAN, REDUCE_ALL, _ANY, _MAX, _MIN, _PROD, _SUM, and ARGMAX, ARGMIN."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_FLOAT = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
"""
_FLOAT_OR_QUANT8 = f"""
    {_FLOAT}
    TENSOR_QUANT8_ASYMM
    TENSOR_QUANT8_ASYMM_SIGNED
"""
_BOOL = """
    T
    TENSOR_BOOL8
"""

signature(
    OperationType.MEAN,
    inputs="input:T axes:TENSOR_INT32 keep_dims",
    outputs="output:T",
    types=_FLOAT_OR_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)

for _type, _types in {
    OperationType.REDUCE_ALL: _BOOL,
    OperationType.REDUCE_ANY: _BOOL,
    OperationType.REDUCE_MAX: _FLOAT_OR_QUANT8,
    OperationType.REDUCE_MIN: _FLOAT_OR_QUANT8,
    OperationType.REDUCE_PROD: _FLOAT,
    OperationType.REDUCE_SUM: _FLOAT,
}.items():
    signature(
        _type,
        inputs="input:T axes:TENSOR_INT32 keep_dims:BOOL",
        outputs="output:T",
        types=_types,
        ranks={"input": (1, 4)},
        quantization="input" if _types is _FLOAT_OR_QUANT8 else None,
    )

for _type in (OperationType.ARGMAX, OperationType.ARGMIN):
    signature(
        _type,
        inputs="input:T axis",
        outputs="output:TENSOR_INT32",
        types=f"""
            {_FLOAT_OR_QUANT8}
            TENSOR_INT32
        """,
    )
