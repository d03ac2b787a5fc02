"""Images as outputs: recognized by shape, with pixels in each usual range, and drawn."""

import numpy as np
import pytest
from PIL import Image

from nnhal_tools.output_kinds.image import OutputImage
from nnhal_tools.output_kinds.recognition import recognize
from tests.tools.output_kinds.executions import execution, find

PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (PIXELS.astype(float), "0 to 255"),
        (PIXELS / 255, "0 to 1"),
        (PIXELS / 127.5 - 1, "-1 to 1"),
        (PIXELS, "0 to 255"),
    ],
)
def test_pixels_are_those_of_the_image(values: np.ndarray, text: str) -> None:
    finding = recognize(execution(values[np.newaxis]))
    assert isinstance(finding, OutputImage)
    assert finding.reason == f"output a is [1, 16, 16, 3] for an image of 8x8, with values from {text}"
    np.testing.assert_array_equal(np.asarray(finding.draw(Image.new("RGB", (5, 5)))), PIXELS)
    assert finding.note == "an image of 16x16; --draw saves it"
    assert finding.row() == {"width": 16, "height": 16}


def test_channels_may_come_first() -> None:
    finding = recognize(execution((PIXELS / 255).transpose(2, 0, 1)[np.newaxis], image=(1, 3, 8, 8)))
    assert isinstance(finding, OutputImage)
    np.testing.assert_array_equal(finding.pixels, PIXELS)


@pytest.mark.parametrize(
    "outputs",
    [
        [np.zeros((1, 2, 2, 3))],
        [np.zeros((1, 400, 400, 3))],
        [np.full((1, 8, 8, 3), np.nan)],
        [np.full((1, 8, 8, 1), -3.0)],  # a mask without sigmoid, for example
        [np.zeros((1, 8, 8, 3))] * 2,
        [np.zeros((1, 8, 8, 3, 1))],
    ],
)
def test_other_outputs_are_not_images(outputs: list[np.ndarray]) -> None:
    assert find(execution(*outputs))["kind"] is None
