"""Images: the output of super resolution, style transfer, denoising and the like."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal.types import Bytes
from nnhal_tools.output_kinds.finding import Execution, Finding

if TYPE_CHECKING:
    from PIL.Image import Image

_LARGEST_FACTOR = 16
"""Models that enlarge images more than this are not known."""


@dataclass
class OutputImage(Finding):
    """Image with pixels [H,W] or [H,W,3]."""

    kind: ClassVar[str] = "image"

    pixels: Bytes

    def as_json(self) -> dict[str, Any]:
        """Return the size of the image."""
        return {"image": self.row()}

    def row(self) -> dict[str, Any]:
        """Return the size of the image."""
        height, width = self.pixels.shape[:2]
        return {"width": width, "height": height}

    @property
    def note(self) -> str:
        """Tell the size, and how to see the image."""
        height, width = self.pixels.shape[:2]
        return f"an image of {width}x{height}; --draw saves it"

    def table(self) -> None:
        """Return None: there is nothing to list."""

    def draw(self, picture: "Image") -> "Image":
        """Return the image, in place of the picture."""
        from PIL import Image

        return Image.fromarray(self.pixels)


def recognize_image(execution: Execution) -> OutputImage | None:
    """Return an image if input and output are one image each, with the same channels, and neither is much smaller.

    The values tell their range: 0..1, -1..1 or 0..255.
    """
    if execution.image_size is None or len(execution.outputs) != 1:
        return None
    (output,), (height, width) = execution.outputs, execution.image_size
    match output.shape:
        case (1, *size, 1 | 3 as channels) | (1, 1 | 3 as channels, *size) if len(size) == 2:
            factors = size[0] / height, size[1] / width
        case _:
            return None
    (image,) = [shape for shape in execution.input_shapes if len(shape) == 4]
    has_same_channels = channels == (image[3] if image[1:3] == execution.image_size else image[1])
    if not (
        has_same_channels
        and np.isfinite(output.values).all()
        and min(factors) >= 0.5
        and max(factors) <= _LARGEST_FACTOR
    ):
        return None
    values = output.values[0] if output.shape[3] == channels else output.values[0].transpose(1, 2, 0)
    pixels, text = _to_pixels(values)
    reason = f"output {output.name} is {list(output.shape)} for an image of {height}x{width}, with {text}"
    return OutputImage(reason, (0,), pixels.squeeze(2) if channels == 1 else pixels)


def _to_pixels(values: npt.NDArray[np.float64]) -> tuple[Bytes, str]:
    """Return values as pixels, and what they seem to be. Few values of an image exceed its range, and not by much."""
    low, high = np.percentile(values, (1, 99))
    if high > 2:
        scaled, text = values, "values from 0 to 255"
    elif low < -0.1:
        scaled, text = (values + 1) * 127.5, "values from -1 to 1"
    else:
        scaled, text = values * 255, "values from 0 to 1"
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8), text
