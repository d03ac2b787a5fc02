"""Small models that tests of several clients share."""

from nnhal import ModelBuilder
from nnhal.types import Model, Operand
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
