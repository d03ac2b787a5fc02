"""Pooling over regions of feature maps, and keypoints of heatmaps: ROI_ALIGN, ROI_POOLING, HEATMAP_MAX_KEYPOINT."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T                                               R                     S
    TENSOR_FLOAT32                                  TENSOR_FLOAT32        FLOAT32
    TENSOR_FLOAT16                                  TENSOR_FLOAT16        FLOAT16
    TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT16_ASYMM  FLOAT32
"""
_REGIONS = "input:T rois:R batch_index:TENSOR_INT32 output_height output_width height_ratio:S width_ratio:S"

signature(
    OperationType.ROI_ALIGN,
    inputs=f"{_REGIONS} height_sampling_ratio width_sampling_ratio layout:BOOL",
    types=_TYPES,
)

signature(OperationType.ROI_POOLING, inputs=f"{_REGIONS} layout:BOOL", types=_TYPES)

signature(
    OperationType.HEATMAP_MAX_KEYPOINT,
    inputs="heatmap:T boxes:R layout:BOOL",
    outputs="score:T keypoint:R",
    types=_TYPES,
)
