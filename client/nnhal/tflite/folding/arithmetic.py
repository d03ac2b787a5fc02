"""Arithmetic on constants that is exact: integers, comparisons, and IEEE operations on float32."""

from collections.abc import Callable

import numpy as np

from nnhal.tflite.folding.evaluator import EVALUATORS, Evaluator, GraphCall, Outputs, evaluator
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import AnyArray


def _truncated_quotient(a: AnyArray, b: AnyArray) -> AnyArray:
    """Return a / b, rounded toward zero for integers."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient: AnyArray = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient


_ELEMENTWISE: dict[int, Callable[..., AnyArray]] = {
    BuiltinOperator.ADD: np.add,
    BuiltinOperator.SUB: np.subtract,
    BuiltinOperator.MUL: np.multiply,
    BuiltinOperator.DIV: _truncated_quotient,
    BuiltinOperator.FLOOR_DIV: np.floor_divide,
    BuiltinOperator.FLOOR_MOD: np.mod,
    BuiltinOperator.MAXIMUM: np.maximum,
    BuiltinOperator.MINIMUM: np.minimum,
    BuiltinOperator.NEG: np.negative,
    BuiltinOperator.ABS: np.abs,
    BuiltinOperator.SQUARE: np.square,
    BuiltinOperator.FLOOR: np.floor,
    BuiltinOperator.CEIL: np.ceil,
    BuiltinOperator.EQUAL: np.equal,
    BuiltinOperator.NOT_EQUAL: np.not_equal,
    BuiltinOperator.LESS: np.less,
    BuiltinOperator.LESS_EQUAL: np.less_equal,
    BuiltinOperator.GREATER: np.greater,
    BuiltinOperator.GREATER_EQUAL: np.greater_equal,
    BuiltinOperator.LOGICAL_AND: np.logical_and,
    BuiltinOperator.LOGICAL_OR: np.logical_or,
    BuiltinOperator.LOGICAL_NOT: np.logical_not,
}
_DIVISIONS = (BuiltinOperator.DIV, BuiltinOperator.FLOOR_DIV, BuiltinOperator.FLOOR_MOD)
_REDUCTIONS: dict[int, Callable[..., AnyArray]] = {
    BuiltinOperator.SUM: np.sum,
    BuiltinOperator.REDUCE_PROD: np.prod,
    BuiltinOperator.REDUCE_MAX: np.max,
    BuiltinOperator.REDUCE_MIN: np.min,
    BuiltinOperator.REDUCE_ALL: np.all,
    BuiltinOperator.REDUCE_ANY: np.any,
}


def _elementwise(function: Callable[..., AnyArray]) -> Evaluator:
    def evaluate(call: GraphCall) -> Outputs:
        arrays = call.arrays()
        is_quantized = any(call.tensor(i).scales for i in range(len(arrays))) or call.output().scales
        if is_quantized or call.option("fused_activation_function", 0):
            return None
        if call.operator.code in _DIVISIONS and not np.all(arrays[1]):
            return None
        return [np.asarray(function(*arrays), call.dtype())]

    return evaluate


EVALUATORS.update({code: _elementwise(function) for code, function in _ELEMENTWISE.items()})


@evaluator(*_REDUCTIONS)
def reduce(call: GraphCall) -> Outputs:
    """Evaluate a reduction of integers or booleans. The sum of reals depends on the order of additions."""
    values = call.array(0)
    if values.dtype.kind not in "ib" or call.tensor(0).scales:
        return None
    axes, keep_dims = tuple(call.integers(1)), bool(call.option("keep_dims", False))
    return [np.asarray(_REDUCTIONS[call.operator.code](values, axis=axes, keepdims=keep_dims), call.dtype())]
