"""Kernels of CpuRef check between the steps of long work whether their execution must end."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.errors import HalError, general_failure
from nnhal.types import DTYPES, AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.reference import kernel
from nnhal_driver.backends.reference.kernel import KERNELS
from nnhal_driver.graph import build_graphs
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall
from tests.driver.one_operation import Value, boolean, float32, int32, int_tensor, model_of, tensor

F32 = T.TENSOR_FLOAT32


def floats(*shape: int) -> Value:
    """Return a tensor of small, different numbers."""
    return tensor(F32, shape), np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 / 4


BOXES = (tensor(F32, (12, 8)), np.tile(np.arange(12, dtype=np.float32)[:, np.newaxis], (1, 8)) + [0, 0, 0.1, 0.1] * 2)
CASES = {
    "conv": (Op.CONV_2D, [floats(2, 9, 9, 3), floats(4, 3, 3, 3), floats(4), *map(int32, (1, 1, 1, 0))], [F32]),
    "grouped": (
        Op.GROUPED_CONV_2D,
        [floats(1, 9, 9, 4), floats(4, 3, 3, 2), floats(4), *map(int32, (1, 1, 1, 2, 0)), boolean(False)],
        [F32],
    ),
    "depthwise": (
        Op.DEPTHWISE_CONV_2D,
        [floats(2, 9, 9, 3), floats(1, 3, 3, 6), floats(6), *map(int32, (1, 2, 2, 2, 0))],
        [F32],
    ),
    "transposed": (
        Op.TRANSPOSE_CONV_2D,
        [
            floats(1, 4, 4, 2),
            floats(3, 3, 3, 2),
            floats(3),
            *map(int32, (0, 0, 0, 0, 2, 2, 0)),
            boolean(False),
        ],
        [F32],
    ),
    "fully connected": (Op.FULLY_CONNECTED, [floats(9, 5), floats(4, 5), floats(4), int32(0)], [F32]),
    "matmul": (Op.BATCH_MATMUL, [floats(3, 9, 5), floats(3, 5, 4), boolean(False), boolean(False)], [F32]),
    "integer matmul": (
        Op.BATCH_MATMUL,
        [int_tensor(np.ones((3, 9, 5))), int_tensor(np.ones((3, 5, 4))), boolean(False), boolean(False)],
        [T.TENSOR_INT32],
    ),
    "pooling": (Op.MAX_POOL_2D, [floats(1, 9, 9, 2), *map(int32, (2, 1, 1, 3, 3, 0))], [F32]),
    "log softmax": (Op.LOG_SOFTMAX, [floats(2, 6), float32(1), int32(-1)], [F32]),
    "sequence": (
        Op.UNIDIRECTIONAL_SEQUENCE_RNN,
        [floats(2, 6, 3), floats(4, 3), floats(4, 4), floats(4), floats(2, 4), int32(0), int32(0)],
        [F32],
    ),
    "suppression": (
        Op.BOX_WITH_NMS_LIMIT,
        [
            floats(12, 2),
            BOXES,
            int_tensor(np.zeros(12)),
            float32(-1),
            int32(-1),
            int32(0),
            float32(0.5),
            float32(1),
            float32(0),
        ],
        [F32, F32, T.TENSOR_INT32, T.TENSOR_INT32],
    ),
    "regions": (
        Op.ROI_POOLING,
        [
            floats(1, 4, 4, 1),
            (tensor(F32, (3, 4)), np.tile([0, 0, 2, 2], (3, 1))),
            int_tensor([0, 0, 0]),
            *map(int32, (2, 2)),
            *map(float32, (1, 1)),
            boolean(False),
        ],
        [F32],
    ),
}


class Checks:
    """Counts the checks of a run, and ends it at the last one."""

    def __init__(self, last: int = 2**31) -> None:
        self.count = 0
        self._last = last

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._last:
            raise general_failure("the end")


def run(type_: Op, inputs: Sequence[Value], outputs: Sequence[T], check: Checks) -> list[AnyArray]:
    """Run the shape rule and the kernel of an operation."""
    operands = [Operand(output) for output in outputs]
    view = build_graphs(model_of(type_, inputs, operands, constants=False))[0].operations[0]
    values = [np.asarray(value, DTYPES[operand.type]) for operand, value in inputs]
    call = OperationCall(view, [*values, *(None for _ in outputs)], {}, check=check)
    infer(call, [()] * len(outputs))
    result = KERNELS[type_](call)
    return [result] if isinstance(result, np.ndarray) else list(result)


@pytest.mark.parametrize("name", CASES)
def test_tiles_give_the_same_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    type_, inputs, outputs = CASES[name]
    whole = run(type_, inputs, outputs, Checks())
    monkeypatch.setattr(kernel, "_TILE", 50)
    for tiled, expected in zip(run(type_, inputs, outputs, Checks()), whole, strict=True):
        np.testing.assert_allclose(tiled, expected, rtol=1e-5)
        assert tiled.dtype == expected.dtype


@pytest.mark.parametrize("name", CASES)
def test_every_check_can_end_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    type_, inputs, outputs = CASES[name]
    monkeypatch.setattr(kernel, "_TILE", 50)
    all_checks = Checks()
    run(type_, inputs, outputs, all_checks)
    assert all_checks.count >= 2
    for last in (1, all_checks.count):
        checks = Checks(last)
        with pytest.raises(HalError, match="the end"):
            run(type_, inputs, outputs, checks)
        assert checks.count == last
