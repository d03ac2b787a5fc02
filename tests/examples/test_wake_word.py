"""The streaming example on a sound from a file, compared with LiteRT step by step."""

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import AnyArray
from tests.shared import shared

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
features_of = pytest.importorskip("pymicro_features")

PROGRAM = Path(__file__).resolve().parents[2] / "examples/wake_word/wake_word.py"
RATE = 16_000


def write_sound(path: Path) -> bytes:
    """Write two seconds of a rising tone with noise, and return its samples."""
    times = np.arange(2 * RATE) / RATE
    noise = np.random.default_rng(5).normal(0, 0.05, times.size)
    samples = ((0.5 * np.sin(2 * np.pi * (200 + 400 * times) * times) + noise) * 20_000).astype("<i2").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples)
    return samples


def litert_probabilities(model: Path, samples: bytes) -> list[float]:
    engine = interpreter.Interpreter(str(model))
    engine.allocate_tensors()
    output = engine.get_output_details()[0]
    scale, zero_point = output["quantization"]
    frontend, rows = features_of.MicroFrontend(), []
    for start in range(0, len(samples) - 319, 320):
        found = frontend.process_samples(samples[start : start + 320])
        rows += [found.features] if found.features else []
    stored: AnyArray = np.clip(np.round(np.array(rows, np.float32) / 0.1015625) - 128, -128, 127).astype(np.int8)
    probabilities = []
    for step in range(len(stored) // 3):
        engine.set_tensor(engine.get_input_details()[0]["index"], stored[np.newaxis, step * 3 : step * 3 + 3])
        engine.invoke()
        probabilities.append((float(engine.get_tensor(output["index"])[0, 0]) - zero_point) * scale)
    return probabilities


@pytest.mark.slow
def test_wake_word(tmp_path: Path) -> None:
    model = shared("models/micro_wakeword_alexa.tflite")
    samples = write_sound(tmp_path / "sound.wav")
    command = [sys.executable, str(PROGRAM), str(model), str(tmp_path / "sound.wav")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    expected = litert_probabilities(model, samples)
    lines = result.stdout.splitlines()
    assert lines[-1] == f"{len(expected)} steps, last probability {expected[-1]:.3f}"
    assert len(lines) - 1 == sum(probability > 0.5 for probability in expected)
