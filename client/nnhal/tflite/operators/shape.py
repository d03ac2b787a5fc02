"""Shapes of tensors: SHAPE, RANK. A shape that the model computes with is folded; these are results of the model."""

from collections.abc import Sequence

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.types import OperationType


@converter(BuiltinOperator.SHAPE)
def shape(call: OperatorCall) -> None:
    """Convert SHAPE of a known shape."""
    _write(call, call.known_shape(0))


@converter(BuiltinOperator.RANK)
def rank(call: OperatorCall) -> None:
    """Convert RANK."""
    _write(call, [len(call.shape(0))])


def _write(call: OperatorCall, values: Sequence[int]) -> None:
    """Emit a RESHAPE to write a constant: an operand is not both a constant and a result of the model."""
    call.emit(OperationType.RESHAPE, [call.int32_tensor(values), call.int32_tensor([len(values)])])
