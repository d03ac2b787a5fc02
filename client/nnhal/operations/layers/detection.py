"""Object detection: AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING, GENERATE_PROPOSALS."""

from nnhal.operations.signature import FLOATS_WITH_SCALARS, signature
from nnhal.types import OperationType

signature(
    OperationType.AXIS_ALIGNED_BBOX_TRANSFORM,
    inputs="roi:R bbox_deltas:D batches:TENSOR_INT32 image_info:R",
    outputs="output:R",
    types="""
        R                     D
        TENSOR_FLOAT32        TENSOR_FLOAT32
        TENSOR_FLOAT16        TENSOR_FLOAT16
        TENSOR_QUANT16_ASYMM  TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED
    """,
)

signature(
    OperationType.BOX_WITH_NMS_LIMIT,
    inputs="""
        scores:T roi:R batches:TENSOR_INT32 score_threshold:S max_num_detections nms_kernel iou_threshold:S sigma:S
        nms_score_threshold:S
    """,
    outputs="scores_out:T roi_out:R classes_out:TENSOR_INT32 batches_out:TENSOR_INT32",
    types="""
        T                                               R                     S
        TENSOR_FLOAT32                                  TENSOR_FLOAT32        FLOAT32
        TENSOR_FLOAT16                                  TENSOR_FLOAT16        FLOAT16
        TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT16_ASYMM  FLOAT32
    """,
)

signature(
    OperationType.DETECTION_POSTPROCESSING,
    inputs="""
        scores:T bbox_deltas:T anchors:T scale_y:S scale_x:S scale_h:S scale_w:S use_regular_nms:BOOL
        max_num_detections max_classes_per_detection max_detections_per_class score_threshold:S iou_threshold:S
        is_bg_in_label:BOOL
    """,
    outputs="scores_out:T boxes_out:T classes_out:TENSOR_INT32 num_detections:TENSOR_INT32",
    types=FLOATS_WITH_SCALARS,
)

signature(
    OperationType.GENERATE_PROPOSALS,
    inputs="""
        scores:T bbox_deltas:T anchors:A image_info:R height_stride:S width_stride:S pre_nms_max post_nms_max
        iou_threshold:S min_size:S layout:BOOL
    """,
    outputs="scores_out:T roi_out:R batches_out:TENSOR_INT32",
    types="""
        T                                               A                    R                     S
        TENSOR_FLOAT32                                  TENSOR_FLOAT32       TENSOR_FLOAT32        FLOAT32
        TENSOR_FLOAT16                                  TENSOR_FLOAT16       TENSOR_FLOAT16        FLOAT16
        TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT16_SYMM  TENSOR_QUANT16_ASYMM  FLOAT32
    """,
)
