"""Operators that select boxes of detected objects."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule

_MAX_COUNT = 2**16


@rule("TFLite_Detection_PostProcess", types=["f32 f32 f32 -> f32 f32 f32 f32", "u8 u8 u8 -> f32 f32 f32 f32"])
def detection_post_process(op: OperatorCheck) -> None:
    """Check the selection of boxes by score. Its options are those of `custom_options`."""
    encodings, scores, anchors = op.shape(0, rank=3), op.shape(1, rank=3), op.shape(2, rank=2)
    boxes = encodings[1]
    op.require(encodings == (1, boxes, 4), f"input 0 has shape {list(encodings)}; expected [1, n, 4]")
    op.require(scores[:2] == (1, boxes), f"input 1 has shape {list(scores)}; expected [1, {boxes}, n]")
    op.require(anchors == (boxes, 4), f"input 2 has shape {list(anchors)}; expected [{boxes}, 4]")
    classes = op.option("num_classes")
    op.require_range("num_classes", classes, max(scores[2] - 1, 1), scores[2])
    op.positive("max_detections", "max_classes_per_detection", "detections_per_class", high=_MAX_COUNT)
    op.require_range("max_classes_per_detection", op.option("max_classes_per_detection"), 1, classes)
    for name in ("y_scale", "x_scale", "h_scale", "w_scale"):
        op.require_range(name, op.float_option(name), 2.0**-30, 2.0**30)
    op.require_range("nms_iou_threshold", op.float_option("nms_iou_threshold"), 2.0**-20, 1)
    detections = op.option("max_detections") * op.option("max_classes_per_detection")
    op.output_shape([1, detections, 4])
    op.output_shape([1, detections], 1)
    op.output_shape([1, detections], 2)
    op.output_shape([1], 3)
    op.work += boxes * boxes * classes


@rule(
    "NON_MAX_SUPPRESSION_V4",
    types=["f32 f32 i32 f32 f32 -> i32 i32"],
    options="NonMaxSuppressionV4Options",
    optional_options=True,
)
@rule(
    "NON_MAX_SUPPRESSION_V5",
    types=["f32 f32 i32 f32 f32 f32 -> i32 f32 i32"],
    options="NonMaxSuppressionV5Options",
    optional_options=True,
)
def non_max_suppression(op: OperatorCheck) -> None:
    """Check the selection of a constant number of boxes."""
    boxes = op.shape(0, rank=2)
    op.require(boxes[1] == 4, f"input 0 has shape {list(boxes)}; expected [n, 4]")
    op.input_shape(1, (boxes[0],))
    for index in range(2, len(op.inputs)):
        op.input_shape(index, ())
    count = op.integer(2)
    op.require_range("the number of boxes", count, 1, _MAX_COUNT)
    for index in range(len(op.outputs) - 1):
        op.output_shape([count], index)
    op.output_shape([], len(op.outputs) - 1)
    op.work += boxes[0] * count
