"""Service with a backend that crashes, hangs or waits as a file tells it."""

from pathlib import Path

import numpy as np

import nnhal
from nnhal.types import Operand, OperandType, OperationType
from tests.end_to_end.support.service_process import Service, start_service

VALUES = np.array([1, 2], np.float32)
"""Input of the models, and their output."""
_PLUGIN = Path(__file__).parents[2] / "end_to_end" / "backends" / "hostile"


def relu_model(relus: int = 1) -> nnhal.Model:
    """Return a model that copies positive values."""
    b = nnhal.ModelBuilder()
    value = b.input(OperandType.TENSOR_FLOAT32, (2,))
    for _ in range(relus):
        value = b.add(OperationType.RELU, value, output=Operand(OperandType.TENSOR_FLOAT32, (2,)))
    b.output(value)
    return b.build()


def start_hostile(folder: Path, behavior: Path, *options: str, **settings: str) -> Service:
    """Start the service. Its backends are Hostile and CpuRef, its state is in the folder `state`."""
    defaults = {
        "NNHAL_DYNAMIC_BACKENDS_PATH": str(_PLUGIN),
        "NNHAL_BACKENDS": "Hostile,CpuRef",
        "NNHAL_STATE_DIR": str(folder / "state"),
        "HOSTILE_FILE": str(behavior),
        "NNHAL_SANDBOX_PATHS": str(behavior.parent),
    }
    return start_service(folder, *options, **(defaults | settings))
