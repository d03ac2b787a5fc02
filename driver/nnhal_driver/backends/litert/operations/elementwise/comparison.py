"""Converters of EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL."""

from nnhal.types import OperandType, OperationType
from nnhal_driver.backends.litert.lowering import INT32, Lowering, converter

_OPERATORS = {
    OperationType.EQUAL: ("EQUAL", "EqualOptions"),
    OperationType.NOT_EQUAL: ("NOT_EQUAL", "NotEqualOptions"),
    OperationType.LESS: ("LESS", "LessOptions"),
    OperationType.LESS_EQUAL: ("LESS_EQUAL", "LessEqualOptions"),
    OperationType.GREATER: ("GREATER", "GreaterOptions"),
    OperationType.GREATER_EQUAL: ("GREATER_EQUAL", "GreaterEqualOptions"),
}


@converter(*_OPERATORS)
def comparison(lower: Lowering) -> None:
    """Compare quantized values as float32, as NNAPI requires. The engine's own comparison rounds."""
    operator, options = _OPERATORS[OperationType(lower.call.view.type)]
    lower.emit(operator, [_comparable_tensor(lower, "x"), _comparable_tensor(lower, "y")], [lower.output()], options)


def _comparable_tensor(lower: Lowering, name: str) -> int:
    if lower.is_quantized(name):
        return lower.real_values(name)
    if lower.type(name) == OperandType.TENSOR_BOOL8:
        return lower.as_spec(lower.input(name), INT32)
    return lower.input(name)
