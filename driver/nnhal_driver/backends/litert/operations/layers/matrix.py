"""Converters of FULLY_CONNECTED and BATCH_MATMUL."""

from nnhal.types import OperandType, OperationType
from nnhal_driver.backends.litert.limits import KernelLimits
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.backends.litert.operations.layers.convolution import filter_arguments, output_spec
from nnhal_driver.backends.litert.shape_analysis import Unsupported


@converter(OperationType.FULLY_CONNECTED, limits=KernelLimits(product_of=("input", "weights")))
def fully_connected(lower: Lowering) -> None:
    """Reshape the input to a matrix, as NNAPI does implicitly."""
    values, weights, bias = filter_arguments(lower, "weights")
    rows, _ = lower.shape("output")
    matrix = lower.reshape(values, (rows, lower.shape("weights")[1]))
    out = lower.output(like=output_spec(lower, matrix))
    activation = lower.call.activation()
    lower.emit(
        "FULLY_CONNECTED", [matrix, weights, bias], [out], "FullyConnectedOptions", fused_activation_function=activation
    )


@converter(OperationType.BATCH_MATMUL, limits=KernelLimits(product_of=("x", "y")))
def batch_matmul(lower: Lowering) -> None:
    """Pass the transpositions as options."""
    if lower.type("output") == OperandType.TENSOR_INT32:
        raise Unsupported("the engine does not multiply matrices of TENSOR_INT32", "TENSOR_FLOAT32")
    flags = {"adj_x": lower.call.flag("adj_x"), "adj_y": lower.call.flag("adj_y")}
    lower.emit("BATCH_MATMUL", [lower.input("x"), lower.input("y")], [lower.output()], "BatchMatMulOptions", **flags)
