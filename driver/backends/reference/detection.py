"""Kernels of AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING and GENERATE_PROPOSALS."""

from collections.abc import Sequence

import numpy as np

from driver.backends.reference.kernel import Floats, floats, kernel
from driver.backends.reference.quantization import to_output
from driver.operations.boxes import reals, transformed
from driver.operations.call import Call
from driver.operations.selection import proposals, survivors
from driver.operations.suppression import Indices, descending, hard, suppress
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(call: Call) -> AnyArray:
    """Each box moved by the deltas of each class, and clipped to its image."""
    deltas = reals(call, "bbox_deltas")
    image = reals(call, "image_info")[call.array("batches")]
    classes = deltas.reshape(len(deltas), deltas.shape[1] // 4, 4)
    moved = transformed(reals(call, "roi")[:, np.newaxis], classes, image[:, np.newaxis])
    return to_output(call, "output", moved.reshape(deltas.shape))


@kernel(OperationType.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(call: Call) -> Sequence[AnyArray]:
    """Decayed scores, boxes as they came, classes and batches of the boxes that survive suppression."""
    chosen = survivors(call)
    boxes = call.array("roi").reshape(*call.shape("scores"), 4)
    return [
        to_output(call, "scores_out", chosen.scores),
        boxes[chosen.rows, chosen.classes],
        chosen.classes.astype(np.int32),
        call.array("batches")[chosen.rows],
    ]


@kernel(OperationType.GENERATE_PROPOSALS)
def generate_proposals(call: Call) -> Sequence[AnyArray]:
    """Scores, boxes and images of the anchors, moved by their deltas, that survive suppression."""
    chosen = proposals(call)
    return [
        to_output(call, "scores_out", chosen.scores),
        to_output(call, "roi_out", chosen.boxes),
        chosen.images.astype(np.int32),
    ]


@kernel(OperationType.DETECTION_POSTPROCESSING)
def detection_postprocessing(call: Call) -> Sequence[AnyArray]:
    """Scores, boxes and labels of what each image shows, filled up with zeros, and how many they are."""
    scores, boxes = floats(call, "scores"), _decoded(call)
    detect = _regular if call.flag("use_regular_nms") else _fast
    entries = call.integer("max_num_detections")
    if detect is _fast:
        entries *= call.integer("max_classes_per_detection")
    images = len(scores)
    scores_out = np.zeros((images, entries), np.float32)
    boxes_out = np.zeros((images, entries, 4), np.float32)
    classes_out = np.zeros((images, entries), np.int32)
    counts = np.zeros(images, np.int32)
    for image in range(images):
        anchors, classes = detect(call, scores[image], boxes[image])
        count = counts[image] = len(anchors)
        scores_out[image, :count] = scores[image, anchors, classes]
        boxes_out[image, :count] = boxes[image, anchors]
        classes_out[image, :count] = classes - (not call.flag("is_bg_in_label"))
    return [to_output(call, "scores_out", scores_out), to_output(call, "boxes_out", boxes_out), classes_out, counts]


@np.errstate(over="ignore", invalid="ignore")
def _decoded(call: Call) -> Floats:
    """Boxes [images, anchors, 4] as y1, x1, y2, x2."""
    deltas, anchors = floats(call, "bbox_deltas"), floats(call, "anchors")
    scales = np.array([call.number(f"scale_{name}") for name in "yxhw"], np.float32)
    scaled = deltas[..., :4] / scales
    centre = anchors[:, :2] + anchors[:, 2:] * scaled[..., :2]
    half = anchors[:, 2:] * np.exp(scaled[..., 2:]) * np.float32(0.5)
    return np.concatenate([centre - half, centre + half], axis=-1)


def _regular(call: Call, scores: Floats, boxes: Floats) -> tuple[Indices, Indices]:
    """The anchors and classes of one image's detections: each class suppressed by itself, then the best of all."""
    decay = hard(call.number("iou_threshold"))
    anchors, classes = [], []
    for class_ in range(1, scores.shape[1]):
        candidates = np.flatnonzero(scores[:, class_] > call.number("score_threshold"))
        limit = call.integer("max_detections_per_class")
        order, _ = suppress(boxes[candidates], scores[candidates, class_], limit, decay)
        anchors.append(candidates[order])
        classes.append(np.full(len(order), class_))
    anchor, class_of = np.concatenate(anchors), np.concatenate(classes)
    best = descending(scores[anchor, class_of])[: call.integer("max_num_detections")]
    return anchor[best], class_of[best]


def _fast(call: Call, scores: Floats, boxes: Floats) -> tuple[Indices, Indices]:
    """The anchors and classes of one image's detections: suppressed by the best class, then the best ones of each."""
    best = scores[:, 1:].max(axis=1)
    candidates = np.flatnonzero(best > call.number("score_threshold"))
    limit, decay = call.integer("max_num_detections"), hard(call.number("iou_threshold"))
    order, _ = suppress(boxes[candidates], best[candidates], limit, decay)
    anchors = candidates[order]
    classes = 1 + descending(scores[anchors, 1:])[:, : call.integer("max_classes_per_detection")]
    return np.repeat(anchors, classes.shape[1]), classes.reshape(-1)
