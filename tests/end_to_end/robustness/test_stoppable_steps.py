"""Small models whose single operations take seconds end at their deadline, and the worker goes on."""

import numpy as np
import pytest

import nnhal
from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.end_to_end.support.service_process import Service

F32, I32 = T.TENSOR_FLOAT32, T.TENSOR_INT32
COUNT = 2**26


def model(operation: Op) -> nnhal.Model:
    """Return a model of an input of one element, which computes many."""
    b = nnhal.ModelBuilder()
    x = b.input(F32, (1, 1))
    if operation == Op.RANDOM_MULTINOMIAL:
        row = b.add(Op.TILE, x, np.array([1, 64], np.int32), output=Operand(F32, (1, 64)))
        seeds = np.array([1, 2], np.int32)
        b.output(b.add(operation, row, COUNT, seeds, output=Operand(I32, (1, COUNT))))
        return b.build()
    large = Operand(F32, (1, COUNT))
    value = b.add(Op.TILE, x, np.array([1, COUNT], np.int32), output=large)
    if operation == Op.TOPK_V2:
        value, indices = b.add(operation, value, COUNT, outputs=[large, Operand(I32, (1, COUNT))])
        b.output(value)
        b.output(indices)
        return b.build()
    for _ in range(20):
        value = b.add(operation, value, value, output=large)
    axis = np.array([1], np.int32)
    b.output(b.add(Op.REDUCE_SUM, value, axis, True, output=Operand(F32, (1, 1))))
    return b.build()


@pytest.mark.parametrize("operation", [Op.RANDOM_MULTINOMIAL, Op.TOPK_V2, Op.POW], ids=lambda type_: type_.name)
def test_deadline_ends_a_long_operation(service: Service, operation: Op) -> None:
    worker = service.pid
    with nnhal.connect(service.target, transport="grpc") as device:
        prepared = device.prepare(model(operation)).result()
        with pytest.raises(nnhal.HalError, match="MISSED_DEADLINE"):
            prepared.execute([np.ones((1, 1), np.float32)], deadline=0.1)
    assert service.pid == worker
    assert not service.logged("worker-died")
