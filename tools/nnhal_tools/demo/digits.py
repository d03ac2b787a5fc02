"""Model and images of the demo. `tools/dev/train_digits.py` writes both files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnhal.types import Bytes

FOLDER = Path(__file__).parent
MODEL = FOLDER / "digits.tflite"
"""Takes "image", float32 [1,8,8,1] with values 0..1, and returns "probabilities", float32 [1,10]."""
HIGHEST_PIXEL = 16
REQUIRED_ACCURACY = 0.95
"""The demo fails unless the share of correct answers is larger."""


def load_images() -> tuple[Bytes, Bytes]:
    """Return the digits that the model was not trained on: images uint8 [N,8,8] with values 0..16, and labels [N]."""
    with np.load(FOLDER / "digits.npz", allow_pickle=False) as file:
        return file["images"], file["labels"]


def scale_pixels(images: Bytes) -> npt.NDArray[np.float32]:
    """Return images uint8 [N,8,8] as inputs of the model, float32 [N,8,8,1]."""
    return (images[..., np.newaxis] / HIGHEST_PIXEL).astype(np.float32)
