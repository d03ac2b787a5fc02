"""Finds a wake word in a sound file with a streaming model, whose state stays on the device.

    pip install pymicro-features
    python examples/wake_word/wake_word.py alexa.tflite sound.wav

The model is one of microWakeWord: it takes three rows of 40 features of the sound, int8, for every 30 ms. The sound is
a WAV file with 16,000 samples a second, 16 bits, one channel.
"""

import argparse
import wave

import numpy as np
import numpy.typing as npt
from pymicro_features import MicroFrontend

import nnhal

RATE, STEP_S = 16_000, 0.01
CHUNK_BYTES = 2 * int(RATE * STEP_S)
FEATURE_SCALE = 0.1015625  # of the models of microWakeWord: 26 / 256


def read_features(path: str) -> npt.NDArray[np.float32]:
    """Return the features of a sound: float32 [steps, 40]."""
    with wave.open(path, "rb") as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"{path}: expected {RATE} samples a second, 16 bits, one channel")
        sound = file.readframes(file.getnframes())
    frontend, rows, position = MicroFrontend(), [], 0
    while position + CHUNK_BYTES <= len(sound):
        output = frontend.process_samples(sound[position : position + CHUNK_BYTES])
        position += output.samples_read * 2
        if output.features:
            rows.append(output.features)
    return np.array(rows, np.float32).reshape(-1, 40)


parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("sound")
parser.add_argument("--target", help="address of a service; by default this program starts one")
arguments = parser.parse_args()

features = np.clip(np.round(read_features(arguments.sound) / FEATURE_SCALE) - 128, -128, 127).astype(np.int8)
with nnhal.connect(arguments.target) as device, device.prepare(arguments.model).result() as prepared:
    output = prepared.outputs[0]
    _, rows, _ = prepared.inputs[0].dimensions
    with prepared.stream() as stream:
        for step in range(len(features) // rows):
            window = features[step * rows : (step + 1) * rows]
            (score,) = stream.step([window[np.newaxis]])
            probability = (float(score.reshape(-1)[0]) - output.zero_point) * output.scale
            if probability > 0.5:
                print(f"{step * rows * STEP_S:6.2f} s  {probability:.2f}  {'#' * round(probability * 20)}")
        print(f"{step + 1} steps, last probability {probability:.3f}")
