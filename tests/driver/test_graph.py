"""Views of a model for backends."""

import pytest

import nnhal
from nnhal.types import OperandType, OperationType
from nnhal_driver.graph import build_graphs


def test_unknown_argument_is_an_error_with_the_names_that_exist() -> None:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [2])
    b.output(b.add(OperationType.RELU, x, output=x.description))
    (operation,) = build_graphs(b.build())[0].operations
    assert operation.operand("input").dimensions == (2,)
    with pytest.raises(KeyError, match=r"operation 0 of main \(RELU\) has no argument 'x'; it has input, output"):
        operation.operand("x")
