"""Operators whose NNAPI operation takes the same tensors in the same order and nothing else."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType

_SAME_NAME = (
    "ABS EMBEDDING_LOOKUP EXP FLOOR HARD_SWISH HASHTABLE_LOOKUP LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC NEG "
    "POW PRELU RELU RELU6 RSQRT SIN SQRT TANH"
)


@converter(*(BuiltinOperator[name] for name in _SAME_NAME.split()))
def _one_to_one(call: OperatorCall) -> None:
    call.emit(call.counterpart, call.inputs())


@converter(BuiltinOperator.RELU_N1_TO_1)
def _relu_n1_to_1(call: OperatorCall) -> None:
    call.emit(OperationType.RELU1, call.inputs())
