"""StableHLO operators: STABLEHLO_ADD, STABLEHLO_MULTIPLY, STABLEHLO_MAXIMUM, STABLEHLO_MINIMUM, STABLEHLO_AND."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import FusedActivationFunc, OperationType

_ARITHMETIC: dict[int, OperationType] = {
    BuiltinOperator.STABLEHLO_ADD: OperationType.ADD,
    BuiltinOperator.STABLEHLO_MULTIPLY: OperationType.MUL,
}
_COUNTERPARTS: dict[int, OperationType] = {
    BuiltinOperator.STABLEHLO_MAXIMUM: OperationType.MAXIMUM,
    BuiltinOperator.STABLEHLO_MINIMUM: OperationType.MINIMUM,
    BuiltinOperator.STABLEHLO_AND: OperationType.LOGICAL_AND,
}


@converter(*_ARITHMETIC)
def arithmetic(call: OperatorCall) -> None:
    """Convert an operator with an activation in NNAPI."""
    call.require_unquantized("StableHLO's arithmetic on integers wraps, NNAPI's saturates")
    call.emit(_ARITHMETIC[call.operator.code], [*call.inputs(), call.int32_scalar(FusedActivationFunc.NONE)])


@converter(*_COUNTERPARTS)
def one_to_one(call: OperatorCall) -> None:
    """Convert an operator with the same arguments in NNAPI."""
    call.require_same_quantization("StableHLO's integers have no scale")
    call.emit(_COUNTERPARTS[call.operator.code], call.inputs())
