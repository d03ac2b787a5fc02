"""The plug-in that misbehaves as a file tells it, and a model whose output shows whether it ran there."""

import os
from pathlib import Path

import numpy as np

import nnhal
from nnhal.types import Operand, OperandType, OperationType
from tests.concurrency import TIMEOUT_S

FOLDER = Path(__file__).parent / "hostile"
"""Folder of the plug-in."""
VALUES = np.array([1, -2], np.float32)
COPIED, COMPUTED = [1, -2], [1, 0]
"""Outputs of the plug-in, and of CpuRef."""


def behave(file: Path, behavior: str) -> None:
    """Tell the backend how to behave."""
    temporary = file.with_suffix(".new")
    temporary.write_text(behavior)
    os.replace(temporary, file)


def model() -> nnhal.Model:
    """Return a model of one RELU."""
    b = nnhal.ModelBuilder()
    b.output(b.add(OperationType.RELU, b.input(OperandType.TENSOR_FLOAT32, (2,)), output=Operand(3, (2,))))
    return b.build()


def run(device: nnhal.Device) -> list[float]:
    """Prepare and execute a model."""
    outputs = device.prepare(model(), cache=False).result(TIMEOUT_S).execute([VALUES])
    values: list[float] = outputs[0].tolist()
    return values
