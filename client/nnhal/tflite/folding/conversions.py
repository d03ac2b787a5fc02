"""Conversions of constants: CAST, DEQUANTIZE, DENSIFY."""

import numpy as np

from nnhal.tflite.folding.evaluator import GraphCall, Outputs, evaluator
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import AnyArray


@evaluator(BuiltinOperator.CAST)
def cast(call: GraphCall) -> Outputs:
    """Evaluate CAST. Reals outside of the integer's range have no defined result, so they are not folded."""
    values, dtype = call.array(0), call.dtype()
    if values.dtype.kind == "c":
        return None
    if values.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not np.all((values > limits.min - 1) & (values < limits.max + 1)):
            return None
    return [values.astype(dtype)]


@evaluator(BuiltinOperator.DEQUANTIZE)
def dequantize(call: GraphCall) -> Outputs:
    """Evaluate DEQUANTIZE: widen float16, or compute (value - zero point) * scale, rounded once as LiteRT does."""
    values, tensor = call.array(0), call.tensor(0)
    if values.dtype.kind == "f":
        return [values.astype(np.float32)]
    if not tensor.scales:
        return None
    scales: AnyArray = np.array(tensor.scales, np.float64)
    zero_points: AnyArray = np.array(tensor.zero_points or (0,) * len(tensor.scales), np.int64)
    dimension = tensor.quantized_dimension if len(tensor.scales) > 1 else None
    scales, zero_points = (_along(a, dimension, values.ndim) for a in (scales, zero_points))
    return [((values.astype(np.int64) - zero_points) * scales).astype(np.float32)]


def _along(values: AnyArray, dimension: int | None, rank: int) -> AnyArray:
    """Return values that broadcast along a dimension of an array, or a single one that broadcasts everywhere."""
    if dimension is None:
        return values.reshape(())
    return values.reshape([-1 if i == dimension else 1 for i in range(rank)])


@evaluator(BuiltinOperator.DENSIFY)
def densify(call: GraphCall) -> Outputs:
    """Evaluate DENSIFY. Sparse constants are dense already: see `densify_constants`."""
    return [call.array(0)]
