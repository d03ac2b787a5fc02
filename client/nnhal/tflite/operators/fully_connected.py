"""Matrix products: FULLY_CONNECTED."""

from dataclasses import replace
from math import prod

from tflite import BuiltinOperator, FullyConnectedOptionsWeightsFormat

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType


@converter(BuiltinOperator.FULLY_CONNECTED)
def fully_connected(call: OperatorCall) -> None:
    """Convert FULLY_CONNECTED.

    NNAPI's output always has shape [batch, units]. If TFLite keeps the input's dimensions, a RESHAPE restores them.
    """
    default = FullyConnectedOptionsWeightsFormat.DEFAULT
    if call.option("WeightsFormat", default) != default:
        raise TfliteError("shuffled weights have no NNAPI counterpart")
    input_, weights = call.input(0), call.input(1)
    units, _ = call.shape(1, rank=2)
    inputs = [input_, weights, call.bias(2, input_, weights, units), call.activation()]
    output = call.output()
    if len(output.dimensions) == 2:
        call.emit(OperationType.FULLY_CONNECTED, inputs)
        return
    flat = call.add(replace(output, dimensions=(prod(output.dimensions) // units, units)))
    call.emit(OperationType.FULLY_CONNECTED, inputs, [flat])
    call.emit(OperationType.RESHAPE, [flat, call.int32_tensor(output.dimensions)])
