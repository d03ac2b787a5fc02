"""Converters of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS
from nnhal_driver.backends.litert.lowering import Lowering, converter, same_operator

converter(OperationType.LOGICAL_AND, OperationType.LOGICAL_OR)(same_operator)
converter(OperationType.LOGICAL_NOT, limits=ELEMENTWISE_LIMITS)(same_operator)


@converter(OperationType.SELECT)
def select(lower: Lowering) -> None:
    """Convert both choices to the output's scale first."""
    choices = [lower.as_spec(lower.input(name), lower.spec("output")) for name in ("if_true", "if_false")]
    lower.emit("SELECT", [lower.input("condition"), *choices], [lower.output()], "SelectOptions")
