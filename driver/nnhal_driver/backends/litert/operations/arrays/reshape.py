"""Converters of RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.operations.arrays.reshape import permutation


@converter(OperationType.RESHAPE, OperationType.SQUEEZE, OperationType.EXPAND_DIMS, limits=ELEMENTWISE_LIMITS)
def reshape(lower: Lowering) -> None:
    """Copy to the new shape, which the shape rule gives."""
    lower.copy(lower.input("input"), lower.output(like=lower.spec("input")))


@converter(OperationType.TRANSPOSE)
def transpose(lower: Lowering) -> None:
    """Pass the permutation as a tensor."""
    order = list(permutation(lower.call))
    lower.emit("TRANSPOSE", [lower.input("input"), lower.constant(order)], [lower.output(like=lower.spec("input"))])


@converter(OperationType.RANK, limits=ELEMENTWISE_LIMITS)
def rank(lower: Lowering) -> None:
    """Copy the rank, a constant: the engine allows only outputs of operators."""
    lower.copy(lower.constant([len(lower.shape("input"))]), lower.output())
