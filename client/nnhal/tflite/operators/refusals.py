"""Operators that no NNAPI operations express exactly, with the reasons."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator

_COMPLEX = "computes with complex numbers, a type that NNAPI lacks"
_TABLE = "uses a hash table, which NNAPI lacks"
_SCATTER = "writes to positions that are data; NNAPI only reads from such positions"
_BITS = "works on the bits of integers, for which NNAPI has no operation"
_RANDOM = "draws random numbers by another method than NNAPI's RANDOM_MULTINOMIAL"
_SHAPE = "has an output whose shape depends on values"

REASONS: dict[int, str] = {
    BuiltinOperator.ATAN2: "NNAPI has no inverse trigonometric functions",
    BuiltinOperator.BITCAST: _BITS,
    BuiltinOperator.BITWISE_XOR: _BITS,
    BuiltinOperator.BROADCAST_ARGS: "computes a shape from values that are not constant",
    BuiltinOperator.BUCKETIZE: "NNAPI cannot search in a list",
    BuiltinOperator.COMPLEX_ABS: _COMPLEX,
    BuiltinOperator.CONV_3D: "NNAPI has no convolutions in three dimensions",
    BuiltinOperator.CONV_3D_TRANSPOSE: "NNAPI has no convolutions in three dimensions",
    BuiltinOperator.COS: "NNAPI has no cosine, and sin(x + pi / 2) loses precision near the zeros",
    BuiltinOperator.CUMSUM: "NNAPI has no cumulative sums, and a product with a matrix of ones adds in another order",
    BuiltinOperator.DILATE: "NNAPI cannot insert elements between others",
    BuiltinOperator.DYNAMIC_UPDATE_SLICE: _SCATTER,
    BuiltinOperator.GELU: "NNAPI has no error function, and 1 + tanh(x) loses precision for negative numbers",
    BuiltinOperator.HASHTABLE: _TABLE,
    BuiltinOperator.HASHTABLE_FIND: _TABLE,
    BuiltinOperator.HASHTABLE_IMPORT: _TABLE,
    BuiltinOperator.HASHTABLE_SIZE: _TABLE,
    BuiltinOperator.IMAG: _COMPLEX,
    BuiltinOperator.MATRIX_DIAG: "NNAPI cannot write to a diagonal",
    BuiltinOperator.MATRIX_SET_DIAG: "NNAPI cannot write to a diagonal",
    BuiltinOperator.MULTINOMIAL: _RANDOM,
    BuiltinOperator.NON_MAX_SUPPRESSION_V4: "NNAPI's suppression has other arguments and results",
    BuiltinOperator.NON_MAX_SUPPRESSION_V5: "NNAPI's suppression has other arguments and results",
    BuiltinOperator.RANDOM_STANDARD_NORMAL: _RANDOM,
    BuiltinOperator.RANDOM_UNIFORM: _RANDOM,
    BuiltinOperator.RANGE: _SHAPE,
    BuiltinOperator.REAL: _COMPLEX,
    BuiltinOperator.REDUCE_WINDOW: "NNAPI's windows have other functions",
    BuiltinOperator.REVERSE_SEQUENCE: "reverses each row by another length; NNAPI reverses whole dimensions",
    BuiltinOperator.RFFT2D: _COMPLEX,
    BuiltinOperator.RIGHT_SHIFT: _BITS,
    BuiltinOperator.SCATTER_ND: _SCATTER,
    BuiltinOperator.SEGMENT_SUM: _SCATTER,
    BuiltinOperator.SPARSE_TO_DENSE: _SCATTER,
    BuiltinOperator.TOPK_V2: "among equal values, NNAPI takes the last one first, TFLite the first one",
    BuiltinOperator.UNIQUE: _SHAPE,
    BuiltinOperator.UNSORTED_SEGMENT_MAX: _SCATTER,
    BuiltinOperator.UNSORTED_SEGMENT_MIN: _SCATTER,
    BuiltinOperator.UNSORTED_SEGMENT_PROD: _SCATTER,
    BuiltinOperator.UNSORTED_SEGMENT_SUM: _SCATTER,
    BuiltinOperator.WHERE: _SHAPE,
}
"""Why an operator always runs in LiteRT."""


@converter(*REASONS)
def refuse(call: OperatorCall) -> None:
    """Refuse the operator with its reason."""
    raise TfliteError(REASONS[call.operator.code])
