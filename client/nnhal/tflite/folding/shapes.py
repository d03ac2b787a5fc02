"""Shapes and ranges of constants: RESHAPE, SQUEEZE, EXPAND_DIMS, BROADCAST_*, RANGE, FILL, ZEROS_LIKE."""

import numpy as np

from nnhal.tflite.folding.evaluator import MAX_ELEMENTS, GraphCall, Outputs, evaluator
from nnhal.tflite_schema import BuiltinOperator


@evaluator(BuiltinOperator.RESHAPE)
def reshape(call: GraphCall) -> Outputs:
    """Evaluate RESHAPE. LiteRT ignores a shape that is not int32."""
    if call.has(1) and call.array(1).dtype != np.int32:
        return None
    shape = call.integers(1) if call.has(1) else list(call.option("new_shape", ()) or ())
    return [call.array(0).reshape(shape)]


@evaluator(BuiltinOperator.SQUEEZE)
def squeeze(call: GraphCall) -> Outputs:
    """Evaluate SQUEEZE."""
    values, axes = call.array(0), call.option("squeeze_dims", ()) or ()
    return [values.squeeze(tuple(axes) if len(axes) else None)]


@evaluator(BuiltinOperator.EXPAND_DIMS)
def expand_dims(call: GraphCall) -> Outputs:
    """Evaluate EXPAND_DIMS."""
    return [np.expand_dims(call.array(0), call.integers(1)[0])]


@evaluator(BuiltinOperator.BROADCAST_TO)
def broadcast_to(call: GraphCall) -> Outputs:
    """Evaluate BROADCAST_TO."""
    return [np.broadcast_to(call.array(0), call.integers(1))]


@evaluator(BuiltinOperator.BROADCAST_ARGS)
def broadcast_args(call: GraphCall) -> Outputs:
    """Evaluate BROADCAST_ARGS."""
    return [np.array(np.broadcast_shapes(call.integers(0), call.integers(1)), call.dtype())]


@evaluator(BuiltinOperator.RANGE)
def range_(call: GraphCall) -> Outputs:
    """Evaluate RANGE on integers. Real steps accumulate errors that depend on the implementation."""
    if call.dtype().kind != "i":
        return None
    start, limit, delta = (call.integers(i)[0] for i in range(3))
    if abs(limit - start) // max(abs(delta), 1) > MAX_ELEMENTS:
        return None
    return [np.arange(start, limit, delta, dtype=call.dtype())]


@evaluator(BuiltinOperator.FILL)
def fill(call: GraphCall) -> Outputs:
    """Evaluate FILL."""
    return [np.broadcast_to(call.array(1).reshape(()), call.integers(0))]  # without memory, which may not suffice


@evaluator(BuiltinOperator.ZEROS_LIKE)
def zeros_like(call: GraphCall) -> Outputs:
    """Evaluate ZEROS_LIKE."""
    return [np.zeros_like(call.array(0))]
