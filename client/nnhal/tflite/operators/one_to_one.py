"""Operators whose NNAPI operation takes the same tensors in the same order and nothing else."""

from nnhal.tflite.call import CONVERTERS, Converter, OperatorCall
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType

_COUNTERPARTS = {
    BuiltinOperator.ABS: OperationType.ABS,
    BuiltinOperator.EMBEDDING_LOOKUP: OperationType.EMBEDDING_LOOKUP,
    BuiltinOperator.EXP: OperationType.EXP,
    BuiltinOperator.FLOOR: OperationType.FLOOR,
    BuiltinOperator.HARD_SWISH: OperationType.HARD_SWISH,
    BuiltinOperator.HASHTABLE_LOOKUP: OperationType.HASHTABLE_LOOKUP,
    BuiltinOperator.LOG: OperationType.LOG,
    BuiltinOperator.LOGICAL_AND: OperationType.LOGICAL_AND,
    BuiltinOperator.LOGICAL_NOT: OperationType.LOGICAL_NOT,
    BuiltinOperator.LOGICAL_OR: OperationType.LOGICAL_OR,
    BuiltinOperator.LOGISTIC: OperationType.LOGISTIC,
    BuiltinOperator.NEG: OperationType.NEG,
    BuiltinOperator.POW: OperationType.POW,
    BuiltinOperator.PRELU: OperationType.PRELU,
    BuiltinOperator.RELU: OperationType.RELU,
    BuiltinOperator.RELU6: OperationType.RELU6,
    BuiltinOperator.RELU_N1_TO_1: OperationType.RELU1,
    BuiltinOperator.RSQRT: OperationType.RSQRT,
    BuiltinOperator.SIN: OperationType.SIN,
    BuiltinOperator.SQRT: OperationType.SQRT,
    BuiltinOperator.TANH: OperationType.TANH,
}


def _one_to_one(type_: OperationType) -> Converter:
    def convert(call: OperatorCall) -> None:
        call.emit(type_, call.inputs())

    return convert


CONVERTERS.update({operator: _one_to_one(type_) for operator, type_ in _COUNTERPARTS.items()})
