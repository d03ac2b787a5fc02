"""Converters of ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter, same_operator

converter(
    OperationType.ABS,
    OperationType.EXP,
    OperationType.FLOOR,
    OperationType.LOG,
    OperationType.NEG,
    OperationType.SIN,
    OperationType.SQRT,
    limits=ELEMENTWISE_LIMITS,
)(same_operator)


@converter(OperationType.RSQRT, limits=ELEMENTWISE_LIMITS)
def rsqrt(lower: Lowering) -> None:
    """Compute with real values: the engine's 8-bit kernel rejects values below the zero point."""
    lower.emit("RSQRT", [lower.real_values("input")], [lower.output(like=FLOAT)])
