"""Image resizing: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T                           S
    TENSOR_FLOAT32              FLOAT32
    TENSOR_FLOAT16              FLOAT16
    TENSOR_QUANT8_ASYMM         FLOAT32
    TENSOR_QUANT8_ASYMM_SIGNED  FLOAT32
"""
_FLAGS = "[align_corners:BOOL] [half_pixel_centers:BOOL]"

for _type, _layout in (
    (OperationType.RESIZE_BILINEAR, "[layout:BOOL]"),
    (OperationType.RESIZE_NEAREST_NEIGHBOR, "layout:BOOL"),
):
    signature(
        _type,
        inputs={
            "by size": f"input:T output_width output_height {_layout} {_FLAGS}",
            "by factor": f"input:T width_scale:S height_scale:S {_layout} {_FLAGS}",
        },
        types=_TYPES,
        quantization="input",
        batchwise=True,
    )
