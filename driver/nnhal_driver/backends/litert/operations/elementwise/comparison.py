"""Converters of EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL."""

from nnhal.types import OperandType, OperationType
from nnhal_driver.backends.litert.lowering import INT32, Lowering, converter


@converter(OperationType.EQUAL, OperationType.NOT_EQUAL)
@converter(OperationType.LESS, OperationType.LESS_EQUAL)
@converter(OperationType.GREATER, OperationType.GREATER_EQUAL)
def comparison(lower: Lowering) -> None:
    """Compare quantized values as float32, as NNAPI requires. The engine's own comparison rounds."""
    inputs = [_comparable_tensor(lower, name) for name in "xy"]
    lower.emit(lower.operation_name, inputs, [lower.output()], lower.options_name)


def _comparable_tensor(lower: Lowering, name: str) -> int:
    if lower.is_quantized(name):
        return lower.real_values(name)
    if lower.type(name) == OperandType.TENSOR_BOOL8:
        return lower.as_spec(lower.input(name), INT32)
    return lower.input(name)
