"""Segmentation: class maps, values of classes, masks, and other outputs."""

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from nnhal.tflite.model_metadata import TensorMetadata
from nnhal_tools.output_kinds.drawing import class_color
from nnhal_tools.output_kinds.segmentation import recognize_segmentation
from tests.tools.output_kinds.executions import described, execution, find

CLASSES = np.zeros((1, 8, 8), np.int32)
CLASSES[0, :, 2:] = 7
"""A quarter of the pixels is of class 0, the rest of class 7."""


def test_class_map_is_recognized() -> None:
    found = find(execution(CLASSES))
    assert found["kind"] == "segmentation"
    assert found["reason"] == "output a is [1,8,8] for an image of 8x8: the number of a class for each pixel"
    assert found["segments"] == [{"class": 7, "share": 0.75}, {"class": 0, "share": 0.25}]


def test_classes_have_the_highest_value() -> None:
    values = np.zeros((1, 4, 8, 21))
    values[..., 3], values[0, 0, 0, 20] = 1, 2
    found = find(execution(values, labels=[f"l{i}" for i in range(21)]))
    assert found["segments"] == [
        {"class": 3, "label": "l3", "share": 31 / 32},
        {"class": 20, "label": "l20", "share": 1 / 32},
    ]


def test_mask_is_divided_and_labelled_by_metadata() -> None:
    mask = np.zeros((1, 8, 8, 1))
    mask[0, :4], mask[0, 4:] = 0.5, 0.49
    found = find(described(execution(mask), {0: TensorMetadata(axis_labels=("person",))}))
    assert {(row["class"], row["label"], row["share"]) for row in found["segments"]} == {
        (0, "background", 0.5),
        (1, "person", 0.5),
    }
    assert "divided at 0.5; labels from the metadata" in found["reason"]


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((1, 3, 8), np.int32),  # too small
        np.zeros((1, 17, 8), np.int32),  # too large
        np.full((1, 8, 8), 300, np.int32),  # distances, for example
        np.full((1, 8, 8), -1, np.int32),
        np.full((1, 8, 8, 1), 1.5),
        np.full((1, 8, 8, 1), np.nan),
        np.zeros((1, 8, 8, 3)),  # an image
        np.zeros((1, 8, 8, 257)),
        np.zeros((2, 8, 8), np.int32),
    ],
)
def test_other_outputs_are_not_segmentations(values: npt.NDArray[np.float64]) -> None:
    assert recognize_segmentation(execution(values)) is None
    assert recognize_segmentation(execution(CLASSES, image=(1, 192))) is None


def test_colors_cover_the_pixels_of_their_class() -> None:
    finding = recognize_segmentation(execution(CLASSES))
    assert finding
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 320), "white"))).astype(int)
    np.testing.assert_array_equal(drawn[:320, :99], np.full((320, 99, 3), 255))
    expected = 255 * 0.45 + np.array(class_color(7)) * 0.55
    np.testing.assert_allclose(drawn[:320, 101:], np.broadcast_to(expected, (320, 299, 3)), atol=1)
    assert (drawn[320:] == class_color(7)).all(-1).any(), "the legend has the color"
