"""Sounds for the tests, as .wav files."""

import wave
from pathlib import Path

import numpy as np

from nnhal_tools.cli import inputs


def write_wav(path: Path, samples: list[float], rate: int = inputs.SAMPLE_RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.array(samples) * 2**15).astype("<i2").tobytes())
    return path
