"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_WINDOW = "stride_width stride_height filter_width filter_height activation [layout:BOOL]"
_FORMS = {
    "explicit padding": f"input:T padding_left padding_right padding_top padding_bottom {_WINDOW}",
    "implicit padding": f"input:T padding_scheme {_WINDOW}",
}
_TYPES = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
    TENSOR_QUANT8_ASYMM
    TENSOR_QUANT8_ASYMM_SIGNED
"""

signature(
    OperationType.AVERAGE_POOL_2D, inputs=_FORMS, outputs="output:T", types=_TYPES, quantization="input", batchwise=True
)

signature(
    OperationType.MAX_POOL_2D, inputs=_FORMS, outputs="output:T", types=_TYPES, quantization="input", batchwise=True
)

signature(
    OperationType.L2_POOL_2D,
    inputs=_FORMS,
    outputs="output:T",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
    """,
    batchwise=True,
)
