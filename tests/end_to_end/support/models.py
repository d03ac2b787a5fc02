"""Small models that tests of several clients share."""

import numpy as np

import nnhal
from nnhal import ModelBuilder
from nnhal.types import CacheOutcome, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor

_X = tensor(T.TENSOR_FLOAT32, (0,))
ADD = model_of(Op.ADD, [(_X, 0), (_X, 0), int32(0)], [_X], constants=False)
"""Model that adds two vectors of any length."""


def chain(length: int, operation: int = Op.ADD) -> Model:
    """Return a model that doubles its input `length` times."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2], name="x")
    for _ in range(length):
        x = b.add(operation, x, x, 0, output=Operand(T.TENSOR_FLOAT32, (2,)))
    b.output(x, name="y")
    return b.build()


def prepare_chain(target: str, length: int) -> CacheOutcome:
    """Prepare a chain of a length on a service, execute it, and return what the cache did."""
    with nnhal.connect(target, timeout=60) as device:
        prepared = device.prepare(chain(length), cache=True).result(60)
        x = np.array([-1, 2], np.float32)
        np.testing.assert_array_equal(prepared.execute([x])[0], x * 2**length)
        return prepared.cache
