"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT."""

from driver.backends.litert.limits import ELEMENTWISE
from driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal.types import OperationType

_OPERATORS = {
    OperationType.ABS: "ABS",
    OperationType.EXP: "EXP",
    OperationType.FLOOR: "FLOOR",
    OperationType.LOG: "LOG",
    OperationType.NEG: "NEG",
    OperationType.SIN: "SIN",
    OperationType.SQRT: "SQRT",
}


@converter(*_OPERATORS, limits=ELEMENTWISE)
def unary(lower: Lowering) -> None:
    """One operator each."""
    lower.emit(_OPERATORS[OperationType(lower.call.view.type)], [lower.input("input")], [lower.output()])


@converter(OperationType.RSQRT, limits=ELEMENTWISE)
def rsqrt(lower: Lowering) -> None:
    """Of real values: the engine's own for 8 bits refuses values below the zero point."""
    lower.emit("RSQRT", [lower.real("input")], [lower.output(like=FLOAT)])
