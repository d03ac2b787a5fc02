"""Shapes of FULLY_CONNECTED and BATCH_MATMUL."""

from math import prod

from driver.operations.call import Call, Shape
from driver.operations.convolution import check_bias, filters
from driver.operations.shape import shape_rule
from driver.operations.work import multiply_adds
from nnhal.types import OperationType

multiply_adds(OperationType.FULLY_CONNECTED, of=("output", "weights"))(filters)


@multiply_adds(OperationType.BATCH_MATMUL, of=("output", "x"))
def matrices(output: Shape, x: Shape) -> int:
    """Each output is a sum over what remains of x's matrix beside the rows of the output, transposed or not."""
    return prod(output) * (prod(x[-2:]) // output[-2])


@shape_rule(OperationType.FULLY_CONNECTED)
def fully_connected(call: Call) -> list[Shape]:
    """[batch_size, num_units], whatever the rank of the input."""
    weights = call.shape("weights")
    call.require(len(weights) == 2, f"weights has rank {len(weights)}; it must be 2")
    units, size = weights
    call.require(units > 0 and size > 0, f"weights has shape {list(weights)}; it must not be empty")
    elements = prod(call.shape("input"))
    call.require(elements % size == 0, f"input has {elements} elements, not a multiple of {size}")
    check_bias(call, "weights", units)
    call.activation()
    return [(elements // size, units)]


@shape_rule(OperationType.BATCH_MATMUL, empty=False)
def batch_matmul(call: Call) -> list[Shape]:
    """[batch dimensions, rows of x, columns of y], after transposition."""
    x, y = call.shape("x"), call.shape("y")
    call.require(len(x) == len(y) and 2 <= len(x) <= 4, f"x has rank {len(x)}, y {len(y)}; both must be 2, 3 or 4")
    call.require(x[:-2] == y[:-2], f"x {list(x)} and y {list(y)} differ in their batch dimensions")
    (rows, inner), (other, columns) = _matrix(call, x, "adj_x"), _matrix(call, y, "adj_y")
    call.require(inner == other, f"x has {inner} columns, y {other} rows, after transposition")
    return [(*x[:-2], rows, columns)]


def _matrix(call: Call, shape: Shape, transposed: str) -> Shape:
    """Rows and columns."""
    return shape[:-3:-1] if call.flag(transposed) else shape[-2:]
