"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

from driver.backends.litert.limits import ELEMENTWISE
from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperationType

_OPERATORS = {OperationType.LOGICAL_AND: "LOGICAL_AND", OperationType.LOGICAL_OR: "LOGICAL_OR"}


@converter(*_OPERATORS)
def binary(lower: Lowering) -> None:
    """The same operands."""
    operator = _OPERATORS[OperationType(lower.call.view.type)]
    lower.emit(operator, [lower.input("x"), lower.input("y")], [lower.output()])


@converter(OperationType.LOGICAL_NOT, limits=ELEMENTWISE)
def logical_not(lower: Lowering) -> None:
    """The same operand."""
    lower.emit("LOGICAL_NOT", [lower.input("input")], [lower.output()])


@converter(OperationType.SELECT)
def select(lower: Lowering) -> None:
    """Both choices are brought to the output's scale first."""
    choices = [lower.as_spec(lower.input(name), lower.spec("output")) for name in ("if_true", "if_false")]
    lower.emit("SELECT", [lower.input("condition"), *choices], [lower.output()], "SelectOptions")
