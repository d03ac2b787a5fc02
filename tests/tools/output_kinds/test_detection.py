"""Detection: outputs in several orders, forms of boxes, and what is not a detection."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nnhal.tflite.model_metadata import BoxFormat, TensorMetadata
from nnhal_tools.output_kinds.detection import Detection
from nnhal_tools.output_kinds.drawing import class_color
from nnhal_tools.output_kinds.finding import Execution
from nnhal_tools.output_kinds.recognition import recognize
from tests.tools.output_kinds.executions import described, execution, find

BOXES = [[[0.1, 0.2, 0.5, 0.6], [0.0, 0.0, 1.1, 1.0], [9.0, 9.0, 0.0, 0.0]]]
CLASSES, SCORES, COUNT = [[2.0, 0.0, 17.0]], [[0.6, 0.9, 0.7]], [2.0]
NAMES = [f"TFLite_Detection_PostProcess{suffix}" for suffix in ("", ":1", ":2", ":3")]


def postprocessed(*arrays: Any, order: Sequence[int] = (0, 1, 2, 3), labels: Sequence[str] = ()) -> Execution:
    """Return an execution with boxes, classes, scores and a count, in some order, under the operator's names."""
    outputs = execution(*(arrays[i] for i in order), labels=labels)
    return described(outputs, {}, {position: NAMES[i] for position, i in enumerate(order)})


def test_boxes_of_postprocessing_are_sorted_and_labelled() -> None:
    found = find(postprocessed(BOXES, CLASSES, SCORES, COUNT, labels=["person", "car", "cat"]))
    assert found["kind"] == "detection" and "the names tell classes from scores" in found["reason"]
    assert found["boxes"] == [
        {"class": 0, "label": "person", "score": 0.9, "box": [0.0, 0.0, 1.0, 1.1]},
        {"class": 2, "label": "cat", "score": 0.6, "box": [0.2, 0.1, 0.6, 0.5]},
    ], "boxes after the count are not read"


def test_outputs_may_have_another_order() -> None:
    arrays = (BOXES, CLASSES, SCORES, COUNT)
    assert find(postprocessed(*arrays, order=(2, 0, 3, 1)))["boxes"] == find(postprocessed(*arrays))["boxes"]


def test_classes_and_scores_need_names_or_metadata() -> None:
    source = execution(BOXES, CLASSES, SCORES, COUNT)
    assert find(source)["kind"] is None
    for metadata in ({1: TensorMetadata(value_labels=("a", "b"))}, {2: TensorMetadata("score")}):
        found = find(described(source, metadata))
        assert "the metadata tells classes from scores" in found["reason"]
        assert [(box["class"], box["score"]) for box in found["boxes"]] == [(0, 0.9), (2, 0.6)]


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
    source = postprocessed([[numbers]], [[1.0]], [[0.5]], [1.0])
    (box,) = find(described(source, {0: TensorMetadata(boxes=form)}))["boxes"]
    assert box["box"] == pytest.approx([0.2, 0.1, 0.6, 0.5])


@pytest.mark.parametrize("form", [BoxFormat(coordinates="pixel"), BoxFormat((0, 0, 1, 2)), BoxFormat((0, 1, 2, 9))])
def test_boxes_of_an_unknown_form_are_not_a_detection(form: BoxFormat) -> None:
    source = postprocessed([[[0.1, 0.2, 0.5, 0.6]]], [[3.0]], [[0.5]], [1.0])
    assert find(described(source, {0: TensorMetadata(boxes=form)}))["kind"] is None


@pytest.mark.parametrize("count", [0.0, -3.0, 99.0])
def test_count_is_limited_to_the_boxes(count: float) -> None:
    found = find(postprocessed([[[0.1, 0.2, 0.5, 0.6]]], [[3.0]], [[0.5]], [count]))
    assert len(found["boxes"]) == (count > 0)


def test_boxes_are_drawn_within_the_picture() -> None:
    finding = recognize(postprocessed([[[0.25, 0.5, 1.4, 1.4]]], [[0.0]], [[0.9]], [1.0], labels=["a \u732b" * 90]))
    assert isinstance(finding, Detection)
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 400), "white")))
    is_colored = (drawn == class_color(1)).all(-1)
    assert drawn.shape == (400, 400, 3) and is_colored[300, 200] and not is_colored[350, 300]
    assert not is_colored[:98].any()


def test_absence_of_boxes_is_said() -> None:
    finding = recognize(postprocessed([[[0.25, 0.5, 0.9, 0.9]]], [[2.0]], [[0.1]], [1.0]))
    assert finding and finding.table() is None and finding.note == "no boxes with a score of at least 0.5"
