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

signature(
    OperationType.RESIZE_BILINEAR,
    inputs={
        "by size": f"input:T output_width output_height [layout:BOOL] {_FLAGS}",
        "by factor": f"input:T width_scale:S height_scale:S [layout:BOOL] {_FLAGS}",
    },
    outputs="output:T",
    types=_TYPES,
    quantization="input",
    batchwise=True,
)

signature(
    OperationType.RESIZE_NEAREST_NEIGHBOR,
    inputs={
        "by size": f"input:T output_width output_height layout:BOOL {_FLAGS}",
        "by factor": f"input:T width_scale:S height_scale:S layout:BOOL {_FLAGS}",
    },
    outputs="output:T",
    types=_TYPES,
    quantization="input",
    batchwise=True,
)
