"""FULLY_CONNECTED and BATCH_MATMUL."""

from driver.backends.litert.known import Refused
from driver.backends.litert.limits import Limits
from driver.backends.litert.lowering import Lowering, converter
from driver.backends.litert.operations.convolution import arguments, like_input
from nnhal.types import OperandType, OperationType


@converter(OperationType.FULLY_CONNECTED, limits=Limits(product=("input", "weights")))
def fully_connected(lower: Lowering) -> None:
    """NNAPI makes a matrix of its input; the engine gets one."""
    values, weights, bias = arguments(lower, "weights")
    rows, _ = lower.shape("output")
    matrix = lower.reshape(values, (rows, lower.shape("weights")[1]))
    out = lower.output(like=like_input(lower, matrix))
    activation = lower.call.activation()
    lower.emit(
        "FULLY_CONNECTED", [matrix, weights, bias], [out], "FullyConnectedOptions", fusedActivationFunction=activation
    )


@converter(OperationType.BATCH_MATMUL, limits=Limits(product=("x", "y")))
def batch_matmul(lower: Lowering) -> None:
    """The same operands; transpositions are options."""
    if lower.type("output") == OperandType.TENSOR_INT32:
        raise Refused("the engine multiplies no matrices of TENSOR_INT32", "TENSOR_FLOAT32")
    flags = {"adjX": lower.call.flag("adj_x"), "adjY": lower.call.flag("adj_y")}
    lower.emit("BATCH_MATMUL", [lower.input("x"), lower.input("y")], [lower.output()], "BatchMatMulOptions", **flags)
