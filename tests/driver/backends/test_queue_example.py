"""The Python example with memory and a queue of its own, against CpuRef."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.preparation.launch import GivenModel
from tests.concurrency import run_concurrently
from tests.driver.fake_backend import parts
from tests.driver.one_operation import execute, prepare

FILE = Path(__file__).parents[3] / "examples" / "backends" / "Example_Queue_backend.py"
X = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
LIMIT = np.full(X.shape, 0.5, np.float32)


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device("test", [load(file_candidate(FILE)).backend, CpuRef()], DeviceOptions(merge_partitions=False))
    yield device
    device.close()


def model(*types: Op, outputs: Sequence[int] = (-1,)) -> Model:
    """Return a chain of operations; those with two arguments also read a constant."""
    b = ModelBuilder()
    values = [b.input(T.TENSOR_FLOAT32, X.shape)]
    limit = b.constant(LIMIT)
    for type_ in types:
        arguments = [values[-1], limit] if type_ in (Op.MAXIMUM, Op.MINIMUM) else [values[-1]]
        values.append(b.add(type_, *arguments, output=Operand(T.TENSOR_FLOAT32, X.shape)))
    for number in outputs:
        b.output(values[number])
    return b.build()


@pytest.mark.parametrize(
    "of",
    [
        model(Op.NEG, Op.MINIMUM, Op.ABS, outputs=(1, 3)),
        model(Op.NEG, Op.RELU, Op.MAXIMUM, Op.TANH, Op.NEG, outputs=(1, 3, 5)),
    ],
)
def test_results_equal_those_of_cpu_ref(device: Device, of: Model) -> None:
    outcome = prepare(of, device)
    assert "ExampleQueue" in {backend for backend, _ in parts(outcome.placement)}
    for result, expected in zip(execute(outcome, [X])[1], execute(prepare(of), [X])[1], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_concurrent_executions(device: Device) -> None:
    outcome = prepare(model(Op.NEG, Op.MINIMUM, Op.RELU, Op.NEG), device)

    def work(number: int) -> None:
        for _ in range(20):
            (result,) = execute(outcome, [X + np.float32(number)])[1]
            np.testing.assert_array_equal(result, -np.minimum(-X - np.float32(number), LIMIT).clip(0))

    run_concurrently(4, work)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (Operand(T.TENSOR_FLOAT32, (0, 4)), "only tensors of one known shape are supported"),
        (Operand(T.TENSOR_FLOAT16, (3, 4)), "only TENSOR_FLOAT32 is supported"),
    ],
)
def test_reasons(device: Device, changed: Operand, reason: str) -> None:
    b = ModelBuilder()
    b.output(b.add(Op.ABS, b.input(changed.type, changed.dimensions), output=changed))
    placed = device.get_supported_operations(GivenModel(b.build()))[1].operations[0]
    assert placed.refusals[0].reason == reason
