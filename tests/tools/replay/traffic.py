"""Traffic of a day: random quantized models, and executions of them that a service records."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import numpy as np

import nnhal
from nnhal import ModelBuilder
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.end_to_end.support.service_process import start_service, stop_service

PLUGINS = Path(__file__).parent / "plugins"
_OPERAND = Operand(T.TENSOR_QUANT8_ASYMM_SIGNED, (2, 4), 0.05, 0)
_WITH_ACTIVATION = (Op.ADD, Op.SUB, Op.MUL)
SOUND = (Op.SUB, Op.MUL, Op.MINIMUM, Op.RELU)
"""Operations without a seeded defect."""


def random_model(random: Random, length: int, *defective: Op) -> Model:
    """Return a model of sound operations over earlier values, with some others at random places."""
    b = ModelBuilder()
    values = [b.input(_OPERAND.type, _OPERAND.dimensions, scale=_OPERAND.scale, name=f"x{i}") for i in range(2)]
    kinds: list[Op] = [*random.choices(SOUND, k=length - len(defective)), *defective]
    random.shuffle(kinds)
    for kind in kinds:
        inputs = [values[-1], random.choice(values[:-1])]
        if kind == Op.RELU:
            values.append(b.add(kind, inputs[0], output=_OPERAND))
        elif kind in _WITH_ACTIVATION:
            values.append(b.add(kind, *inputs, 0, output=_OPERAND))
        else:
            values.append(b.add(kind, *inputs, output=_OPERAND))
    for i, value in enumerate(values[2:]):
        if i == length - 1 or not random.randrange(4):
            b.output(value, name=f"y{i}")
    return b.build()


def record_day(folder: Path, models: Sequence[Model], executions: int, share: float) -> Path:
    """Record a share of executions of models on the reference backend, and return the folder of the archives."""
    records, generator, random = folder / "records", np.random.default_rng(5), Random(6)
    options = ("--record", str(records), "--record-share", str(share), "--backends", "CpuRef")
    service = start_service(folder, *options, NNHAL_STATE_DIR=str(folder / "state"))
    with ExitStack() as stack:
        device = stack.enter_context(nnhal.connect(service.target, timeout=60))
        prepared = [stack.enter_context(device.prepare(model).result(60)) for model in models]
        for _ in range(executions):
            inputs = [generator.integers(-128, 128, _OPERAND.dimensions).astype(np.int8) for _ in range(2)]
            random.choice(prepared).execute(inputs)
    assert stop_service(service) == 0
    return records
