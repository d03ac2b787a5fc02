"""RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

from driver.backends.litert.limits import ELEMENTWISE
from driver.backends.litert.lowering import Lowering, converter
from driver.operations.reshape import permutation
from nnhal.types import OperationType


@converter(OperationType.RESHAPE, OperationType.SQUEEZE, OperationType.EXPAND_DIMS, limits=ELEMENTWISE)
def reshape(lower: Lowering) -> None:
    """The shape rule knows the new shape."""
    lower.copy(lower.input("input"), lower.output(like=lower.spec("input")))


@converter(OperationType.TRANSPOSE)
def transpose(lower: Lowering) -> None:
    """The same order of dimensions."""
    order = list(permutation(lower.call))
    lower.emit("TRANSPOSE", [lower.input("input"), lower.constant(order)], [lower.output(like=lower.spec("input"))])


@converter(OperationType.RANK, limits=ELEMENTWISE)
def rank(lower: Lowering) -> None:
    """Known beforehand; copied, since the engine has outputs of operators only."""
    lower.copy(lower.constant([len(lower.shape("input"))]), lower.output())
