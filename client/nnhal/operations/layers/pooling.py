"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from nnhal.operations.signature import FLOATS, FLOATS_QUANT8, signature
from nnhal.types import OperationType

_WINDOW = "stride_width stride_height filter_width filter_height activation [layout:BOOL]"
_FORMS = {
    "explicit padding": f"input:T padding_left padding_right padding_top padding_bottom {_WINDOW}",
    "implicit padding": f"input:T padding_scheme {_WINDOW}",
}


for _type in (OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D):
    signature(_type, inputs=_FORMS, types=FLOATS_QUANT8, quantization="input", batchwise=True)

signature(
    OperationType.L2_POOL_2D,
    inputs=_FORMS,
    types=FLOATS,
    batchwise=True,
)
