"""Conversion between types: QUANTIZE, DEQUANTIZE, CAST."""

import math

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.types import Operand, OperandType, OperationType

_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)
_BYTES = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)
_MAX_SELECTED = 2**16


@converter(BuiltinOperator.QUANTIZE)
def quantize(call: OperatorCall) -> None:
    """Convert QUANTIZE. NNAPI cannot requantize directly, so 8-bit inputs are converted to TENSOR_FLOAT32 first.

    The two operations round some values to the neighbor of TFLite's result. CpuAcc fuses them back into one QUANTIZE.
    """
    operand = call.description(0)
    if operand.type in _REAL:
        call.emit(OperationType.QUANTIZE, [call.input(0)])
        return
    if operand.type not in _BYTES or call.output().type not in _BYTES:
        raise TfliteError("NNAPI has no way from this type to the other")
    real = call.add(Operand(OperandType.TENSOR_FLOAT32, operand.dimensions))
    call.emit(OperationType.DEQUANTIZE, [call.input(0)], [real])
    call.emit(OperationType.QUANTIZE, [real])


@converter(BuiltinOperator.DEQUANTIZE)
def dequantize(call: OperatorCall) -> None:
    """Convert DEQUANTIZE. In TFLite it also widens float16 (weights of float16 models), which is CAST in NNAPI."""
    input_ = call.input(0)
    half = call.operand(input_).type == OperandType.TENSOR_FLOAT16
    call.emit(OperationType.CAST if half else OperationType.DEQUANTIZE, [input_])


@converter(BuiltinOperator.CAST)
def cast(call: OperatorCall) -> None:
    """Convert CAST. NNAPI's CAST does not take truth values: logical operations replace it."""
    source, target = call.description(0), call.output()
    if source.type == target.type == OperandType.TENSOR_BOOL8:
        call.emit(OperationType.LOGICAL_AND, [call.input(0), call.input(0)])
    elif source.type == OperandType.TENSOR_BOOL8:
        _cast_from_bool(call, target)
    elif target.type == OperandType.TENSOR_BOOL8:
        call.emit(OperationType.NOT_EQUAL, [call.input(0), call.constant(np.zeros(1), source)])
    elif call.tensor(0).type in (TensorType.INT32, TensorType.INT64) and target.type in _BYTES:
        raise TfliteError("TFLite drops the high bits of integers, NNAPI limits them")
    else:
        call.emit(OperationType.CAST, [call.input(0)])


def _cast_from_bool(call: OperatorCall, target: Operand) -> None:
    """Emit SELECT between ones and zeros, as constants of the whole shape: NNAPI's SELECT does not broadcast."""
    shape = call.known_shape(0) or (1,)
    if math.prod(shape) > _MAX_SELECTED:
        raise TfliteError(f"{math.prod(shape)} truth values; with more than {_MAX_SELECTED}, SELECT needs much memory")
    choices = [call.constant(np.full(shape, value), target) for value in (1, 0)]
    call.emit(OperationType.SELECT, [call.input(0), *choices])
