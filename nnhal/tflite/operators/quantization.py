"""Between real and quantised values: QUANTIZE, DEQUANTIZE."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.types import Operand, OperandType, OperationType

_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


@converter(BuiltinOperator.QUANTIZE)
def quantize(call: Call) -> None:
    """From one quantisation to another NNAPI has no operation: the way leads over TENSOR_FLOAT32."""
    input_ = call.input(0)
    if call.operand(input_).type not in _REAL:
        real = call.add(Operand(OperandType.TENSOR_FLOAT32, call.operand(input_).dimensions))
        call.emit(OperationType.DEQUANTIZE, [input_], [real])
        input_ = real
    call.emit(OperationType.QUANTIZE, [input_])


@converter(BuiltinOperator.DEQUANTIZE)
def dequantize(call: Call) -> None:
    """TFLite's also widens float16 (weights of float16 models); that is NNAPI's CAST."""
    input_ = call.input(0)
    half = call.operand(input_).type == OperandType.TENSOR_FLOAT16
    call.emit(OperationType.CAST if half else OperationType.DEQUANTIZE, [input_])
