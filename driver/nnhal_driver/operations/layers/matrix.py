"""Shapes of FULLY_CONNECTED and BATCH_MATMUL."""

from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.layers.convolution import check_bias_and_activation, filter_multiply_adds
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import shape_rule

multiply_adds(OperationType.FULLY_CONNECTED, of=("output", "weights"))(filter_multiply_adds)


@multiply_adds(OperationType.BATCH_MATMUL, of=("output", "x"))
def matmul_multiply_adds(output: Shape, x: Shape) -> int:
    """Count one for each element of x and column of the output."""
    return prod(x) * output[-1]


@shape_rule(OperationType.FULLY_CONNECTED)
def fully_connected(call: OperationCall) -> list[Shape]:
    """Return [batch_size, num_units]."""
    weights = call.shape("weights")
    call.require(len(weights) == 2, f"weights has rank {len(weights)}; it must be 2")
    units, size = weights
    call.require(units > 0 and size > 0, f"weights has shape {list(weights)}; it must not be empty")
    elements = prod(call.shape("input"))
    call.require(elements % size == 0, f"input has {elements} elements, not a multiple of {size}")
    check_bias_and_activation(call, "weights", units)
    return [(elements // size, units)]


@shape_rule(OperationType.BATCH_MATMUL, empty=False)
def batch_matmul(call: OperationCall) -> list[Shape]:
    """Return [batch dimensions, rows of x, columns of y], after transposition."""
    x, y = call.shape("x"), call.shape("y")
    call.require(len(x) == len(y) and 2 <= len(x) <= 4, f"x has rank {len(x)}, y {len(y)}; both must be 2, 3 or 4")
    call.require(x[:-2] == y[:-2], f"x {list(x)} and y {list(y)} differ in their batch dimensions")
    (rows, inner), (other, columns) = _matrix_shape(call, x, "adj_x"), _matrix_shape(call, y, "adj_y")
    call.require(inner == other, f"x has {inner} columns, y {other} rows, after transposition")
    return [(*x[:-2], rows, columns)]


def _matrix_shape(call: OperationCall, shape: Shape, transposed: str) -> Shape:
    """Return rows and columns of a matrix, transposed if the flag is set."""
    return shape[:-3:-1] if call.flag(transposed) else shape[-2:]
