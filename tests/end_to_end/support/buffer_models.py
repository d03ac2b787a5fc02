"""Models whose inputs and outputs the tests of buffers put into buffers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor

X = tensor(T.TENSOR_FLOAT32, (2, 3))
OPEN = tensor(T.TENSOR_FLOAT32, (0, 3))
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def add(operand: Operand) -> Model:
    """Return a model that adds its inputs `left` and `right`."""
    model = model_of(Op.ADD, [(operand, 0), (operand, 0), int32(0)], [operand], constants=False)
    return replace(model, input_names=("left", "right"), output_names=("sum",))


def relu(operand: Operand) -> Model:
    """Return a model with one RELU."""
    return model_of(Op.RELU, [(operand, 0)], [operand], constants=False)


def split(operand: Operand) -> Model:
    """Return a model with two outputs: the first row and the second."""
    row = replace(operand, dimensions=(1, 3))
    model = model_of(Op.SPLIT, [(operand, 0), int32(0), int32(2)], [row, row], constants=False)
    return replace(model, output_names=("top", "bottom"))


def error_status(call: Callable[[], object]) -> int:
    """Make a call that fails, and return the status of its HalError."""
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status
