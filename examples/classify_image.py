"""Classifies a picture with a .tflite file.

    python examples/classify_image.py MODEL.tflite PICTURE

Without arguments, the model is the classifier of handwritten digits that comes with nnhal, and the picture is digit.png
in the folder of this script.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

import nnhal
from nnhal_tools.demo import digits

MODES = {1: "L", 3: "RGB"}
"""Pillow's name for pictures with one channel and with three."""


def read_picture(path: Path, tensor: nnhal.TensorInfo) -> np.ndarray:
    """Return a picture with the shape and the dtype of an input."""
    assert tensor.shape is not None and tensor.dtype is not None
    _, height, width, channels = tensor.shape
    picture = Image.open(path).convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture).reshape(tensor.shape)
    if tensor.dtype == np.float32:
        return (pixels / 255).astype(np.float32)  # some models take -1..1 instead: see their documentation
    return (pixels + tensor.zero_point).astype(tensor.dtype)


parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", type=Path, default=digits.MODEL)
parser.add_argument("picture", nargs="?", type=Path, default=Path(__file__).with_name("digit.png"))
parser.add_argument("--target", help="address of a service; by default this program starts one")
arguments = parser.parse_args()

with nnhal.connect(arguments.target) as device:
    prepared = device.prepare(arguments.model).result()
    for tensor in (*prepared.inputs, *prepared.outputs):
        print(tensor)
    (output,) = prepared.execute([read_picture(arguments.picture, prepared.inputs[0])])
    scores = output[0].astype(float)
    if prepared.outputs[0].scale:  # a quantized model
        scores = (scores - prepared.outputs[0].zero_point) * prepared.outputs[0].scale
    for label in np.argsort(-scores)[:3]:
        print(f"class {label}: {scores[label]:.1%}")
