"""Detection: outputs in several orders, forms of boxes, anchors, and what is not a detection."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from nnhal.tflite.model_metadata import BoxFormat, TensorMetadata
from nnhal_tools.output_kinds.anchors import DETECTORS
from nnhal_tools.output_kinds.boxes import Box, Detection, suppress_overlapping
from nnhal_tools.output_kinds.drawing import class_color
from nnhal_tools.output_kinds.recognition import recognize
from tests.tools.output_kinds.executions import described, execution, find

BOXES = [[[0.1, 0.2, 0.5, 0.6], [0.0, 0.0, 1.1, 1.0], [9.0, 9.0, 0.0, 0.0]]]
CLASSES, SCORES, COUNT = [[2.0, 0.0, 17.0]], [[0.6, 0.9, 0.7]], [2.0]


def test_boxes_of_postprocessing_are_sorted_and_labelled() -> None:
    found = find(execution(BOXES, CLASSES, SCORES, COUNT, labels=["person", "car", "cat"]))
    assert found["kind"] == "detection" and "only one of them has whole numbers, the classes" in found["reason"]
    assert found["boxes"] == [
        {"class": 0, "label": "person", "score": 0.9, "box": [0.0, 0.0, 1.0, 1.1]},
        {"class": 2, "label": "cat", "score": 0.6, "box": [0.2, 0.1, 0.6, 0.5]},
    ], "boxes after the count are not read"


def test_outputs_may_have_another_order() -> None:
    expected = find(execution(BOXES, CLASSES, SCORES, COUNT))["boxes"]
    assert find(execution(SCORES, BOXES, COUNT, CLASSES))["boxes"] == expected


def test_classes_that_look_like_scores_need_names_or_metadata() -> None:
    source = execution(BOXES, [[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]], COUNT)
    assert find(source)["kind"] is None
    names = {1: "TFLite_Detection_PostProcess:1", 2: "TFLite_Detection_PostProcess:2"}
    assert [box["class"] for box in find(described(source, {}, names))["boxes"]] == [1, 0]
    labelled = described(source, {2: TensorMetadata(value_labels=("a", "b"))})
    found = find(labelled)
    assert "the metadata tells classes from scores" in found["reason"]
    assert [(box["label"], box["score"]) for box in found["boxes"]] == [("b", 1.0)]


@pytest.mark.parametrize(
    ("form", "numbers"),
    [
        (BoxFormat((0, 1, 2, 3), "boundaries"), [0.2, 0.1, 0.6, 0.5]),
        (BoxFormat((1, 0, 3, 2), "upper left"), [0.1, 0.2, 0.4, 0.4]),
        (BoxFormat((0, 1, 2, 3), "center"), [0.4, 0.3, 0.4, 0.4]),
        (BoxFormat(), [0.1, 0.2, 0.5, 0.6]),
    ],
)
def test_metadata_tells_the_form_of_boxes(form: BoxFormat, numbers: list[float]) -> None:
    source = execution([[numbers]], [[1.0]], [[0.5]], [1.0])
    (box,) = find(described(source, {0: TensorMetadata(boxes=form)}))["boxes"]
    assert box["box"] == pytest.approx([0.2, 0.1, 0.6, 0.5])


@pytest.mark.parametrize("form", [BoxFormat(coordinates="pixel"), BoxFormat((0, 0, 1, 2)), BoxFormat((0, 1, 2, 9))])
def test_boxes_of_an_unknown_form_are_not_a_detection(form: BoxFormat) -> None:
    source = execution([[[0.1, 0.2, 0.5, 0.6]]], [[3.0]], [[0.5]], [1.0])
    assert find(described(source, {0: TensorMetadata(boxes=form)}))["kind"] is None


@pytest.mark.parametrize("count", [0.0, -3.0, 99.0])
def test_count_is_limited_to_the_boxes(count: float) -> None:
    found = find(execution([[[0.1, 0.2, 0.5, 0.6]]], [[3.0]], [[0.5]], [count]))
    assert len(found["boxes"]) == (count > 0)


def test_boxes_with_scores_of_classes_do_not_overlap() -> None:
    boxes = [[0.1, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.52], [0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]]
    scores = [[0.8, 0.1], [0.9, 0.2], [0.3, 0.7], [0.4, 0.4]]
    found = find(execution([boxes], [scores]))
    assert [(box["class"], box["score"]) for box in found["boxes"]] == [(0, 0.9), (1, 0.7)]


@pytest.mark.parametrize(
    "outputs",
    [
        ([[[3.0, -2.0, 0.5, 9.0]]], [[[0.5, 0.9]]]),  # relative to anchors
        ([[[0.1, 0.2, 0.5, 0.6]]], [[[4.0, -1.0]]]),  # logits
        ([[[0.1, 0.2, 0.5, 0.6]]], [[[0.5], [0.5]]]),
        ([[[0.1, float("nan"), 0.5, 0.6]]], [[[0.5, 0.9]]]),
    ],
)
def test_undecoded_boxes_are_not_a_detection(outputs: tuple[Any, Any]) -> None:
    assert find(execution(*outputs))["kind"] is None


def test_overlap_is_intersection_over_union() -> None:
    box = Box(1, 0, 0, 1, 1)
    assert box.overlap(Box(1, 0.5, 0, 1.5, 1)) == pytest.approx(1 / 3)
    assert box.overlap(Box(1, 2, 0, 3, 1)) == 0
    assert suppress_overlapping([box, Box(2, 0, 0, 1, 1), Box(0.5, 0, 0, 1, 1, class_=1)])[0].score == 2


@pytest.mark.parametrize("grid", DETECTORS, ids=lambda grid: f"{grid.name} {grid.side}")
def test_anchors_place_boxes_of_mediapipe(grid: Any) -> None:
    boxes, logits = np.zeros((1, grid.count, grid.numbers)), np.full((1, grid.count, 1), -200.0)
    boxes[0, -1, :4] = 0, 0, grid.side / 4, grid.side / 2
    logits[0, -1] = 200
    image = (1, grid.side, grid.side, 3)
    (box,) = find(execution(boxes, logits, image=image))["boxes"]
    cells = grid.layers[-1][0]
    center = 1 - 0.5 / cells
    assert box["box"] == pytest.approx([center - 0.125, center - 0.25, center + 0.125, center + 0.25])
    assert box["points"] == [[center, center]] * (grid.numbers // 2 - 2) and box["label"] == grid.name
    assert find(execution(boxes, logits))["kind"] is None
    boxes[0, -1] = np.nan
    finding = recognize(execution(boxes, logits, image=image))
    assert finding and finding.draw(Image.new("RGB", (400, 400))).size == (400, 400)


def test_boxes_are_drawn_within_the_picture() -> None:
    finding = recognize(execution([[[0.25, 0.5, 1.4, 1.4]]], [[0.0]], [[0.9]], [1.0], labels=["a \u732b" * 90]))
    assert isinstance(finding, Detection)
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 400), "white")))
    is_colored = (drawn == class_color(1)).all(-1)
    assert drawn.shape == (400, 400, 3) and is_colored[300, 200] and not is_colored[350, 300]
    assert not is_colored[:98].any()


def test_absence_of_boxes_is_said() -> None:
    finding = recognize(execution([[[0.25, 0.5, 0.9, 0.9]]], [[2.0]], [[0.1]], [1.0]))
    assert finding and finding.table() is None and finding.note == "no boxes with a score of at least 0.5"
