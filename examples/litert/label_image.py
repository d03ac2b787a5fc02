"""Labels a picture: an ordinary program for LiteRT, which runs on a device of nnhal with one changed import.

    NNHAL_TARGET=localhost:50051 python examples/litert/label_image.py MODEL.tflite PICTURE

Without NNHAL_TARGET, it starts a service of its own. Without arguments, the model is the classifier of handwritten
digits that comes with nnhal.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

import nnhal_tools.demo
from nnhal.litert import Interpreter  # in place of: from ai_edge_litert.interpreter import Interpreter

MODES = {1: "L", 3: "RGB"}
"""Pillow's name for pictures with one channel and with three."""

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?", default=str(Path(nnhal_tools.demo.__file__).with_name("digits.tflite")))
parser.add_argument("picture", nargs="?", default=str(Path(__file__).parent.with_name("digit.png")))
arguments = parser.parse_args()

interpreter = Interpreter(model_path=arguments.model, num_threads=2)
interpreter.allocate_tensors()
(source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()

_, height, width, channels = source["shape"]
picture = Image.open(arguments.picture).convert(MODES[int(channels)]).resize((int(width), int(height)))
pixels = np.asarray(picture).reshape(source["shape"])
if source["dtype"] == np.float32:
    pixels = (pixels / 255).astype(np.float32)
else:
    pixels = (pixels + source["quantization"][1]).astype(source["dtype"])

interpreter.set_tensor(source["index"], pixels)
interpreter.invoke()
scores = np.squeeze(interpreter.get_tensor(target["index"])).astype(np.float32)
if target["quantization"][0]:
    scale, zero_point = target["quantization"]
    scores = (scores - zero_point) * scale
for label in np.argsort(-scores)[:3]:
    print(f"class {label}: {scores[label]:.4f}")
