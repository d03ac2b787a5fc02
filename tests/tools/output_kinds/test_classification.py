"""Classification: best classes, labels, and other outputs of this shape."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from nnhal.tflite.model_metadata import TensorMetadata
from nnhal.types import Operand, OperandType
from nnhal_tools.output_kinds.classification import recognize_classification
from nnhal_tools.output_kinds.finding import Execution, OutputView, real_values
from tests.tools.cli.command import rendered
from tests.tools.output_kinds.executions import described, execution, find


def rows(source: Execution) -> list[list[str]]:
    finding = recognize_classification(source)
    assert finding
    return rendered(finding.table())


def test_best_classes_are_dequantized_and_labelled() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (1, 6), 1 / 256, -128)
    values = real_values(np.array([[-128, 0, 64, -64, -127, 0]], np.int8), operand)
    assert rows(Execution([OutputView("x", values)], labels=["a", "b", "[bold]c[/bold]", "d", "e", "f"])) == [
        ["class", "label", "probability"],
        ["2", "[bold]c[/bold]", "0.7500"],
        ["1", "b", "0.5000"],
        ["5", "f", "0.5000"],
        ["3", "d", "0.2500"],
        ["4", "e", "0.0039"],
    ]


@pytest.mark.parametrize("values", [[1.5, 0.0], [0.5, -2.0]])
def test_values_that_are_not_probabilities_are_called_scores(values: list[float]) -> None:
    assert rows(execution([values])) == [["class", "score"], ["0", f"{values[0]:g}"], ["1", f"{values[1]:g}"]]


def test_equal_classes_keep_their_order() -> None:
    assert [row[0] for row in rows(execution(np.arange(100)[np.newaxis] % 2))[1:]] == ["1", "3", "5", "7", "9"]


def test_labels_of_the_user_have_precedence_over_metadata() -> None:
    source = described(execution([[0.1, 0.9]]), {0: TensorMetadata(axis_labels=("cat", "dog"))})
    found = find(source)
    assert found["reason"] == "output a is [1,2], a value for each class; labels from the metadata"
    assert found["classes"][0] == {"class": 1, "label": "dog", "probability": 0.9}
    found = find(Execution(source.outputs, source.input_shapes, ["x", "y"]))
    assert "metadata" not in found["reason"] and found["classes"][0]["label"] == "y"


def test_labels_of_another_number_are_not_used() -> None:
    source = described(execution([[0.1, 0.9]]), {0: TensorMetadata(axis_labels=("cat", "dog", "bird"))})
    assert "label" not in find(source)["classes"][0]


def test_output_that_repeats_the_input_is_not_a_classification() -> None:
    assert find(execution(np.zeros((1, 640)), image=(1, 640)))["kind"] is None
    assert find(execution(np.zeros((1, 640)), image=(1, 32)))["kind"] == "classification"


def test_first_of_several_outputs_needs_labels() -> None:
    source = execution([[0.1, 0.9]], [[0.8]])
    assert find(source)["kind"] is None
    labelled = described(source, {0: TensorMetadata(axis_labels=("cat", "dog"))})
    assert [find(each)["kind"] for each in (labelled, replace(source, labels=["x", "y"]))] == ["classification"] * 2


def test_best_classes_are_below_the_picture() -> None:
    finding = recognize_classification(execution([[0.1, 0.9]]))
    assert finding
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 400), "blue")))
    assert drawn.shape[0] > 400 and (drawn[:400] == (0, 0, 255)).all()
    assert (drawn[400:] == 0).all(-1).any(), "the legend has black text"
