"""Products of matrices and projections: FULLY_CONNECTED, BATCH_MATMUL, LSH_PROJECTION."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operators.concatenation import broadcast
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.enumerations import FullyConnectedOptionsWeightsFormat, LSHProjectionType
from nnhal.types import Operand, OperandLifeTime, OperandType, OperationType

_RANKS = range(2, 5)
"""Ranks that NNAPI's products take."""
_LSH_SPARSE, _LSH_DENSE = 3, 2
"""NNAPI's kinds of LSH_PROJECTION. TFLite's SPARSE is not NNAPI's SPARSE_DEPRECATED, which is 1."""


@converter(BuiltinOperator.FULLY_CONNECTED)
def fully_connected(call: OperatorCall) -> None:
    """Convert FULLY_CONNECTED.

    NNAPI's output always has shape [batch, units]. If TFLite keeps the input's dimensions, a RESHAPE restores them.
    """
    default = FullyConnectedOptionsWeightsFormat.DEFAULT
    if call.option("weights_format", default) != default:
        raise TfliteError("shuffled weights have no NNAPI counterpart")
    input_, weights = call.input(0), call.input(1)
    units, size = call.shape(1, rank=2)
    if len(call.shape(0)) not in _RANKS:
        input_ = _reshaped(call, 0, (prod(call.known_shape(0)) // size, size))
    inputs = [input_, weights, call.bias(2, input_, weights, units), call.activation()]
    output = call.output()
    if len(output.dimensions) == 2:
        call.emit(OperationType.FULLY_CONNECTED, inputs)
        return
    output = call.known_output()
    flat = call.add(replace(output, dimensions=(prod(output.dimensions) // units, units)))
    call.emit(OperationType.FULLY_CONNECTED, inputs, [flat])
    call.emit(OperationType.RESHAPE, [flat, call.int32_tensor(output.dimensions)])


@converter(BuiltinOperator.BATCH_MATMUL)
def batch_matmul(call: OperatorCall) -> None:
    """Convert BATCH_MATMUL. NNAPI does not broadcast the batch dimensions."""
    x, y = call.shape(0), call.shape(1)
    adjoint = [bool(call.option(name, False)) for name in ("adj_x", "adj_y")]
    flags = list(map(call.bool_scalar, adjoint))
    if x[:-2] == y[:-2] and len(x) in _RANKS:
        call.emit(OperationType.BATCH_MATMUL, [call.input(0), call.input(1), *flags])
        return
    x, y = call.known_shape(0), call.known_shape(1)
    columns = y[-2] if adjoint[1] else y[-1]
    if prod(y[:-2]) == 1 and not adjoint[0]:
        factors = [_reshaped(call, 0, (prod(x[:-1]), x[-1])), _reshaped(call, 1, y[-2:])]
        shape: tuple[int, ...] = (prod(x[:-1]), columns)
    else:
        try:
            batches = np.broadcast_shapes(x[:-2], y[:-2])
        except ValueError:
            raise TfliteError(f"batches of {list(x)} and {list(y)} do not go together") from None
        factors = [_batches(call, position, batches) for position in range(2)]
        shape = (prod(batches), x[-1] if adjoint[0] else x[-2], columns)
    call.chain(factors[0], (OperationType.BATCH_MATMUL, [factors[1], *flags], shape))


def _batches(call: OperatorCall, position: int, batches: Sequence[int]) -> int:
    """Return a factor with broadcast batches, which are a single dimension."""
    matrix = call.shape(position)[-2:]
    value = broadcast(call, position, (*batches, *matrix))
    if len(batches) == 1:
        return value
    shape = (prod(batches), *matrix)
    return call.apply(OperationType.RESHAPE, [value, call.int32_tensor(shape)], call.operand(value), shape)


def _reshaped(call: OperatorCall, position: int, shape: Sequence[int]) -> int:
    """Return an input with another shape. Constants are reshaped at import."""
    operand = call.description(position)
    if operand.dimensions == tuple(shape):
        return call.input(position)
    if call.is_constant(position):
        return call.constant(call.values(position).reshape(shape), operand)
    return call.apply(OperationType.RESHAPE, [call.input(position), call.int32_tensor(shape)], operand, shape)


@converter(BuiltinOperator.LSH_PROJECTION)
def lsh_projection(call: OperatorCall) -> None:
    """Convert LSH_PROJECTION. NNAPI needs weights for dense projections and takes none for sparse ones."""
    if call.tensor(1).type not in (TensorType.FLOAT32, TensorType.INT32, TensorType.UINT8):
        raise TfliteError(f"{call.tensor(1)} has a type whose bytes NNAPI does not hash")
    call.require_dimensions(1)
    hashes, data = call.input(0), call.input(1)
    real, rows = call.operand(hashes), call.known_shape(1)[0]
    if call.option("type") == LSHProjectionType.DENSE:
        weights = call.input(2) if call.has_input(2) else call.constant(np.ones(rows), replace(real, dimensions=()))
        kind = _LSH_DENSE
    elif call.has_input(2):
        raise TfliteError("sparse projections have no weights in NNAPI")
    else:
        weights = call.add(Operand(OperandType.TENSOR_FLOAT32, (0,), lifetime=OperandLifeTime.NO_VALUE))
        kind = _LSH_SPARSE
    call.emit(OperationType.LSH_PROJECTION, [hashes, data, weights, call.int32_scalar(kind)])
