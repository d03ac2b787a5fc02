"""Plans of one partition, whose inputs and outputs may be in another order than those of the model."""

from itertools import permutations

import numpy as np
import pytest

import nnhal
from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import device, execute, execute_profiled, prepare, tensor

FLOATS = tensor(T.TENSOR_FLOAT32, (2,))
VALUES = {"a": [1.0, 2.0], "b": [30.0, 40.0], "c": [500.0, 600.0]}
RESULTS = {"difference": [29.0, 38.0], "sum": [529.0, 638.0]}


def model_of(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Model:
    """Return a model that computes RESULTS from VALUES."""
    builder = nnhal.ModelBuilder()
    operands = {name: builder.input(T.TENSOR_FLOAT32, (2,), name=name) for name in inputs}
    difference = builder.add(Op.SUB, operands["b"], operands["a"], 0, output=FLOATS)
    results = {"difference": difference, "sum": builder.add(Op.ADD, difference, operands["c"], 0, output=FLOATS)}
    for name in outputs:
        builder.output(results[name], name=name)
    return builder.build()


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
@pytest.mark.parametrize("inputs", list(permutations(VALUES)))
@pytest.mark.parametrize("outputs", list(permutations(RESULTS)))
def test_any_order(backend: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """With and without a profile, which takes the way of plans with several partitions."""
    outcome = prepare(model_of(inputs, outputs), device(backend))
    arrays = [np.array(VALUES[name], np.float32) for name in inputs]
    expected = [RESULTS[name] for name in outputs]
    assert [array.tolist() for array in execute(outcome, arrays)[1]] == expected
    returned = execute_profiled(outcome, arrays).returned
    assert [data.view(np.float32).tolist() for data in returned if data is not None] == expected
