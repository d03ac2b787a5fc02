"""Kernels of AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING and GENERATE_PROPOSALS."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.elementwise.quantization import to_output
from nnhal_driver.backends.reference.kernel import Floats, as_float32, kernel
from nnhal_driver.operations.boxes import real_values, transform_boxes
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.selection import (
    argsort_descending,
    hard_decay,
    proposals,
    selected_boxes,
    suppress,
)
from nnhal_driver.operations.sorting import Indices


@kernel(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(call: OperationCall) -> AnyArray:
    """Move each box by the deltas of each class, and clip it to its image."""
    deltas = real_values(call, "bbox_deltas")
    image = real_values(call, "image_info")[call.array("batches")]
    classes = deltas.reshape(len(deltas), deltas.shape[1] // 4, 4)
    moved = transform_boxes(real_values(call, "roi")[:, np.newaxis], classes, image[:, np.newaxis])
    return to_output(call, "output", moved.reshape(deltas.shape))


@kernel(OperationType.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(call: OperationCall) -> Sequence[AnyArray]:
    """Return decayed scores, boxes, classes and batches of the boxes that suppression selects."""
    selected = selected_boxes(call)
    boxes = call.array("roi").reshape(*call.shape("scores"), 4)
    return [
        to_output(call, "scores_out", selected.scores),
        boxes[selected.rows, selected.classes],
        selected.classes.astype(np.int32),
        call.array("batches")[selected.rows],
    ]


@kernel(OperationType.GENERATE_PROPOSALS)
def generate_proposals(call: OperationCall) -> Sequence[AnyArray]:
    """Return scores, boxes and images of the proposals: anchors moved by their deltas and selected by suppression."""
    selected = proposals(call)
    return [
        to_output(call, "scores_out", selected.scores),
        to_output(call, "roi_out", selected.boxes),
        selected.images.astype(np.int32),
    ]


@kernel(OperationType.DETECTION_POSTPROCESSING)
def detection_postprocessing(call: OperationCall) -> Sequence[AnyArray]:
    """Return scores, boxes and labels of the detections of each image, padded with zeros, and their number."""
    scores, boxes = as_float32(call, "scores"), _decode_boxes(call)
    detect = _detect_regular if call.flag("use_regular_nms") else _detect_fast
    entries = call.integer("max_num_detections")
    if detect is _detect_fast:
        entries *= call.integer("max_classes_per_detection")
    images = len(scores)
    scores_out = np.zeros((images, entries), np.float32)
    boxes_out = np.zeros((images, entries, 4), np.float32)
    classes_out = np.zeros((images, entries), np.int32)
    counts = np.zeros(images, np.int32)
    for image in range(images):
        call.check()
        anchors, classes = detect(call, scores[image], boxes[image])
        count = counts[image] = len(anchors)
        scores_out[image, :count] = scores[image, anchors, classes]
        boxes_out[image, :count] = boxes[image, anchors]
        classes_out[image, :count] = classes - (not call.flag("is_bg_in_label"))
    return [to_output(call, "scores_out", scores_out), to_output(call, "boxes_out", boxes_out), classes_out, counts]


@np.errstate(over="ignore", invalid="ignore")
def _decode_boxes(call: OperationCall) -> Floats:
    """Return the decoded boxes [images, anchors, 4] as y1, x1, y2, x2."""
    deltas, anchors = as_float32(call, "bbox_deltas"), as_float32(call, "anchors")
    scales = np.array([call.number(f"scale_{name}") for name in "yxhw"], np.float32)
    scaled = deltas[..., :4] / scales
    center = anchors[:, :2] + anchors[:, 2:] * scaled[..., :2]
    half = anchors[:, 2:] * np.exp(scaled[..., 2:]) * np.float32(0.5)
    return np.concatenate([center - half, center + half], axis=-1)


def _detect_regular(call: OperationCall, scores: Floats, boxes: Floats) -> tuple[Indices, Indices]:
    """Return anchors and classes of one image's detections: suppression per class, then the best of all classes."""
    decay = hard_decay(call.number("iou_threshold"))
    anchors, classes = [], []
    for class_ in range(1, scores.shape[1]):
        candidates = np.flatnonzero(scores[:, class_] > call.number("score_threshold"))
        limit = call.integer("max_detections_per_class")
        order, _ = suppress(boxes[candidates], scores[candidates, class_], limit, decay, call.check)
        anchors.append(candidates[order])
        classes.append(np.full(len(order), class_))
    anchor, class_of = np.concatenate(anchors), np.concatenate(classes)
    best = argsort_descending(scores[anchor, class_of], call.check)[: call.integer("max_num_detections")]
    return anchor[best], class_of[best]


def _detect_fast(call: OperationCall, scores: Floats, boxes: Floats) -> tuple[Indices, Indices]:
    """Return anchors and classes of one image's detections: suppression by best class, then each box's best classes."""
    best = scores[:, 1:].max(axis=1)
    candidates = np.flatnonzero(best > call.number("score_threshold"))
    limit, decay = call.integer("max_num_detections"), hard_decay(call.number("iou_threshold"))
    order, _ = suppress(boxes[candidates], best[candidates], limit, decay, call.check)
    anchors = candidates[order]
    classes = 1 + argsort_descending(scores[anchors, 1:], call.check)[:, : call.integer("max_classes_per_detection")]
    return np.repeat(anchors, classes.shape[1]), classes.reshape(-1)
