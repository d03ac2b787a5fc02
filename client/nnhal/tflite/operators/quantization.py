"""Conversion between real and quantized values: QUANTIZE, DEQUANTIZE."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.types import Operand, OperandType, OperationType

_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


@converter(BuiltinOperator.QUANTIZE)
def quantize(call: OperatorCall) -> None:
    """Convert QUANTIZE. NNAPI cannot requantize directly, so quantized inputs are converted to TENSOR_FLOAT32 first."""
    input_ = call.input(0)
    if call.operand(input_).type not in _REAL:
        real = call.add(Operand(OperandType.TENSOR_FLOAT32, call.operand(input_).dimensions))
        call.emit(OperationType.DEQUANTIZE, [input_], [real])
        input_ = real
    call.emit(OperationType.QUANTIZE, [input_])


@converter(BuiltinOperator.DEQUANTIZE)
def dequantize(call: OperatorCall) -> None:
    """Convert DEQUANTIZE. In TFLite it also widens float16 (weights of float16 models), which is CAST in NNAPI."""
    input_ = call.input(0)
    half = call.operand(input_).type == OperandType.TENSOR_FLOAT16
    call.emit(OperationType.CAST if half else OperationType.DEQUANTIZE, [input_])
