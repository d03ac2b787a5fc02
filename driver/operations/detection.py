"""Shapes of AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING and GENERATE_PROPOSALS.

BOX_WITH_NMS_LIMIT and GENERATE_PROPOSALS select boxes here already: how many they are is their shape.
"""

from driver.operations.boxes import EIGHTH, check_coordinates, check_order, check_rows, reals
from driver.operations.call import Call, Shape
from driver.operations.geometry import image_shape
from driver.operations.selection import proposals, survivors
from driver.operations.sequence import matrix_shape
from driver.operations.shape import fixed_quantization, fixed_shape, same_quantization, shape_rule
from driver.operations.suppression import SOFT_KERNELS
from nnhal.types import OperandType, OperationType


@shape_rule(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(call: Call) -> list[Shape]:
    """[num_rois, num_classes * 4]."""
    count, width = matrix_shape(call, "bbox_deltas")
    images, _ = matrix_shape(call, "image_info")
    call.require(width > 0 and width % 4 == 0, f"bbox_deltas has {width} columns; it must have 4 for each class")
    call.require(images > 0, "image_info has no rows")
    fixed_shape(call, "roi", (count, 4))
    fixed_shape(call, "batches", (count,))
    fixed_shape(call, "image_info", (images, 2))
    _check_quantization(call, "output", "roi", "image_info")
    batches = call.array("batches")
    check_rows(call, "batches", (batches >= 0) & (batches < images), f"it must be in 0..{images - 1}")
    check_order(call, "roi", reals(call, "roi"))
    return [(count, width)]


@shape_rule(OperationType.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(call: Call) -> list[Shape]:
    """[selected], [selected, 4], [selected] and [selected]."""
    count, classes = matrix_shape(call, "scores")
    call.require(classes > 1, f"scores has {classes} columns; it must have more than one class")
    fixed_shape(call, "roi", (count, 4 * classes))
    fixed_shape(call, "batches", (count,))
    same_quantization(call, "scores", "scores_out")
    _check_quantization(call, "roi_out", "roi")
    kernel = call.integer("nms_kernel")
    call.require(count == 0 or 0 <= kernel < SOFT_KERNELS, f"nms_kernel is {kernel}; it must be in 0..2")
    check_rows(call, "batches", call.array("batches") >= 0, "it must be >= 0")
    check_order(call, "roi", reals(call, "roi").reshape(count, classes, 4))
    selected = len(survivors(call).scores)
    return [(selected,), (selected, 4), (selected,), (selected,)]


@shape_rule(OperationType.GENERATE_PROPOSALS, empty=False)
def generate_proposals(call: Call) -> list[Shape]:
    """[selected], [selected, 4] and [selected]."""
    batches, height, width, anchors = image_shape(call, "scores")
    found, expected = image_shape(call, "bbox_deltas"), (batches, height, width, 4 * anchors)
    call.require(found == expected, f"bbox_deltas has shape {list(found)} as NHWC; it must be {list(expected)}")
    fixed_shape(call, "anchors", (anchors, 4))
    fixed_shape(call, "image_info", (batches, 2))
    same_quantization(call, "scores", "scores_out")
    # with signed scores coordinates may be quantised in any way
    if call.operand("scores").type == OperandType.TENSOR_QUANT8_ASYMM:
        _check_quantization(call, "roi_out", "anchors", "image_info")
    selected = len(proposals(call).scores)
    return [(selected,), (selected, 4), (selected,)]


_POSITIVE = ("scale_y", "scale_x", "scale_h", "scale_w", "max_num_detections")
_NOT_NEGATIVE = ("score_threshold", "iou_threshold")


@shape_rule(OperationType.DETECTION_POSTPROCESSING, empty=False)
def detection_postprocessing(call: Call) -> list[Shape]:
    """[batches, D], [batches, D, 4], [batches, D] and [batches], where D is the largest number of detections."""
    shape = call.shape("scores")
    call.require(len(shape) == 3, f"scores has rank {len(shape)}; it must be 3")
    batches, anchors, classes = shape
    encoding = call.shape("bbox_deltas")[-1]
    call.require(classes > 1, f"scores has {classes} classes; it must have more than one")
    call.require(encoding >= 4, f"bbox_deltas has {encoding} columns; it must have 4 or more")
    fixed_shape(call, "bbox_deltas", (batches, anchors, encoding))
    fixed_shape(call, "anchors", (anchors, 4))
    regular = call.flag("use_regular_nms")
    for name in (*_POSITIVE, "max_detections_per_class" if regular else "max_classes_per_detection"):
        call.require(call.number(name) > 0, f"{name} is {call.number(name):g}; it must be > 0")
    for name in _NOT_NEGATIVE:
        call.require(call.number(name) >= 0, f"{name} is {call.number(name):g}; it must be >= 0")
    detections = call.integer("max_num_detections")
    if not regular:
        detections *= call.integer("max_classes_per_detection")
    return [(batches, detections), (batches, detections, 4), (batches, detections), (batches,)]


def _check_quantization(call: Call, output: str, *inputs: str) -> None:
    """Holds that coordinates, where they are quantised, come and go with scale 0.125 and zero point 0."""
    check_coordinates(call, *inputs)
    if call.operand(output).type == OperandType.TENSOR_QUANT16_ASYMM:
        fixed_quantization(call, output, EIGHTH, 0)
