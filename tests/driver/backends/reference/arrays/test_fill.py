"""FILL on CpuRef."""

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import Value, float32, int32, run, run_kernel, tensor

F32, F16, I32 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32


def dims(*values: int) -> Value:
    return tensor(I32, (len(values),)), values


@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (float32(0.1), F32, np.float32(0.1)),
        (int32(2**31 - 1), I32, 2**31 - 1),
        ((Operand(T.FLOAT16), 0.1), F16, np.float16(0.1)),
    ],
)
def test_fills_any_shape(value: Value, type_: T, expected: float, constants: bool) -> None:
    (out,) = run(Op.FILL, [dims(2, 1, 3), value], [tensor(type_)], constants=constants)
    assert out.tolist() == [[[expected] * 3]] * 2
    assert run(Op.FILL, [dims(1, 1, 1, 1, 2), value], [tensor(type_)])[0].shape == (1, 1, 1, 1, 2)


def test_a_dimension_may_be_zero() -> None:
    assert run_kernel(Op.FILL, [dims(2, 0), int32(7)], [tensor(I32)])[0].shape == (2, 0)


WRONG = [
    (dims(2, -1), tensor(I32), r"dims \[2, -1\] has a negative value"),
    ((tensor(I32, (1, 2)), [[1, 2]]), tensor(I32), "dims has rank 2; it must be 1"),
    ((tensor(I32), np.zeros(0)), tensor(I32), "dims has no elements"),
    (dims(2), tensor(I32, (3,)), r"has shape \[2\], declared \[3\]"),
    (dims(2**15, 2**15), tensor(I32), "its size does not fit 32 bits"),
    (dims(2**30, 2**30, 0), tensor(I32), "its size does not fit 32 bits"),
]


@pytest.mark.parametrize(("shape", "output", "message"), WRONG)
def test_broken_constraints(shape: Value, output: Operand, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run_kernel(Op.FILL, [shape, int32(7)], [output])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE
