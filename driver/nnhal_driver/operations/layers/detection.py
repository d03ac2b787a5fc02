"""Shapes of AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING and GENERATE_PROPOSALS.

BOX_WITH_NMS_LIMIT and GENERATE_PROPOSALS already select their boxes here, because the output shape is their number.
"""

from math import prod

from nnhal.types import OperandType, OperationType
from nnhal_driver.operations.boxes import check_coordinates, check_order, check_rows, real_values
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import image_shape
from nnhal_driver.operations.multiply_adds import SORTING, STEP, multiply_adds
from nnhal_driver.operations.selection import NMS_KERNELS, proposals, selected_boxes
from nnhal_driver.operations.sequence import matrix_shape
from nnhal_driver.operations.shape import require_same_quantization, require_shape, shape_rule


@shape_rule(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(call: OperationCall) -> list[Shape]:
    """Return [num_rois, num_classes * 4]."""
    count, width = matrix_shape(call, "bbox_deltas")
    images, _ = matrix_shape(call, "image_info")
    call.require(width > 0 and width % 4 == 0, f"bbox_deltas has {width} columns; it must have 4 for each class")
    call.require(images > 0, "image_info has no rows")
    require_shape(call, "roi", (count, 4))
    require_shape(call, "batches", (count,))
    require_shape(call, "image_info", (images, 2))
    check_coordinates(call, "roi", "image_info", output="output")
    batches = call.array("batches")
    check_rows(call, "batches", (batches >= 0) & (batches < images), f"it must be in 0..{images - 1}")
    check_order(call, "roi", real_values(call, "roi"))
    return [(count, width)]


@shape_rule(OperationType.BOX_WITH_NMS_LIMIT, slow=True)
def box_with_nms_limit(call: OperationCall) -> list[Shape]:
    """Return [selected], [selected, 4], [selected] and [selected]."""
    count, classes = matrix_shape(call, "scores")
    call.require(classes > 1, f"scores has {classes} columns; it must have more than one class")
    require_shape(call, "roi", (count, 4 * classes))
    require_shape(call, "batches", (count,))
    require_same_quantization(call, "scores", "scores_out")
    check_coordinates(call, "roi", output="roi_out")
    kernel = call.integer("nms_kernel")
    call.require(count == 0 or 0 <= kernel < NMS_KERNELS, f"nms_kernel is {kernel}; it must be in 0..2")
    check_rows(call, "batches", call.array("batches") >= 0, "it must be >= 0")
    check_order(call, "roi", real_values(call, "roi").reshape(count, classes, 4))
    selected = len(selected_boxes(call).scores)
    return [(selected,), (selected, 4), (selected,), (selected,)]


@shape_rule(OperationType.GENERATE_PROPOSALS, empty=False, slow=True)
def generate_proposals(call: OperationCall) -> list[Shape]:
    """Return [selected], [selected, 4] and [selected]."""
    batches, height, width, anchors = image_shape(call, "scores")
    deltas, expected = image_shape(call, "bbox_deltas"), (batches, height, width, 4 * anchors)
    call.require(deltas == expected, f"bbox_deltas has shape {list(deltas)} as NHWC; it must be {list(expected)}")
    require_shape(call, "anchors", (anchors, 4))
    require_shape(call, "image_info", (batches, 2))
    require_same_quantization(call, "scores", "scores_out")
    # with signed scores, coordinates may have any scale and zero point
    if call.operand("scores").type == OperandType.TENSOR_QUANT8_ASYMM:
        check_coordinates(call, "anchors", "image_info", output="roi_out")
    selected = len(proposals(call).scores)
    return [(selected,), (selected, 4), (selected,)]


_POSITIVE = ("scale_y", "scale_x", "scale_h", "scale_w", "max_num_detections")


@shape_rule(OperationType.DETECTION_POSTPROCESSING, empty=False, slow=True)
def detection_postprocessing(call: OperationCall) -> list[Shape]:
    """Return [batches, D], [batches, D, 4], [batches, D] and [batches], where D is the largest number of detections."""
    shape = call.shape("scores")
    call.require(len(shape) == 3, f"scores has rank {len(shape)}; it must be 3")
    batches, anchors, classes = shape
    encoding = call.shape("bbox_deltas")[-1]
    call.require(classes > 1, f"scores has {classes} classes; it must have more than one")
    call.require(encoding >= 4, f"bbox_deltas has {encoding} columns; it must have 4 or more")
    require_shape(call, "bbox_deltas", (batches, anchors, encoding))
    require_shape(call, "anchors", (anchors, 4))
    regular = call.flag("use_regular_nms")
    for name in (*_POSITIVE, "max_detections_per_class" if regular else "max_classes_per_detection"):
        call.require(call.number(name) > 0, f"{name} is {call.number(name):g}; it must be > 0")
    for name in ("score_threshold", "iou_threshold"):
        call.require(call.number(name) >= 0, f"{name} is {call.number(name):g}; it must be >= 0")
    detections = call.integer("max_num_detections")
    if not regular:
        detections *= call.integer("max_classes_per_detection")
    return [(batches, detections), (batches, detections, 4), (batches, detections), (batches,)]


def _selection_work(boxes: int, limit: int) -> int:
    """Count a sort, and the overlaps of all boxes with each of those that are selected."""
    selected = min(boxes, limit) if limit >= 0 else boxes
    return SORTING * boxes + selected * (STEP + 2**5 * boxes)


@multiply_adds(OperationType.BOX_WITH_NMS_LIMIT, of=("scores", "max_num_detections"))
def class_selection_work(scores: Shape, limit: int) -> int:
    """Count the selection of each class."""
    return prod(scores[1:]) * _selection_work(scores[0], limit)


@multiply_adds(OperationType.GENERATE_PROPOSALS, of=("scores", "post_nms_max"))
def proposal_work(scores: Shape, limit: int) -> int:
    """Count the selection of each image."""
    return scores[0] * _selection_work(prod(scores[1:]), limit)


@multiply_adds(OperationType.DETECTION_POSTPROCESSING, of=("scores", "max_num_detections"))
def detection_work(scores: Shape, limit: int) -> int:
    """Count the selection of each class of each image."""
    return scores[0] * prod(scores[2:]) * _selection_work(max(scores[1:], default=1), limit)
