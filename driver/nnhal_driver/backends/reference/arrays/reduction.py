"""Kernels of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN.

Sums and products take the elements in row-major order and round at every step, in the input's own type. numpy's
`accumulate` does so, its `reduce` does not.
"""

import numpy as np

from nnhal.types import DTYPES, AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import Floats, as_float32, is_quantized, kernel, to_output_type
from nnhal_driver.backends.reference.numerics.fixed_point import RANGES
from nnhal_driver.operations.arrays.reduction import reduced_shape, reduction_axes
from nnhal_driver.operations.call import OperationCall

_FINITE = {
    **RANGES,
    OperandType.TENSOR_FLOAT32: (float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)),
    OperandType.TENSOR_FLOAT16: (float(np.finfo(np.float16).min), float(np.finfo(np.float16).max)),
}
"""Smallest and largest finite value of the types that REDUCE_MAX and REDUCE_MIN take."""


def _move_axes_last(call: OperationCall, array: AnyArray) -> AnyArray:
    """Return, as [.., n], the n elements in row-major order that are reduced to each element of the output."""
    axes = reduction_axes(call, array.ndim)
    remaining = [i for i in range(array.ndim) if i not in axes]
    return array.transpose(*remaining, *axes).reshape(*reduced_shape(call), -1)


@kernel(OperationType.MEAN)
def mean(call: OperationCall) -> AnyArray:
    """Return the mean. For quantized types it is the mean of the stored values, truncated towards zero."""
    if is_quantized(call, "input"):
        stored = _move_axes_last(call, call.array("input"))
        total = stored.sum(axis=-1, dtype=np.int64)
        quotient: AnyArray = np.sign(total) * (np.abs(total) // stored.shape[-1])
        return quotient.astype(DTYPES[call.operand("output").type])
    elements = _move_axes_last(call, as_float32(call, "input"))
    with np.errstate(over="ignore", invalid="ignore"):
        average: Floats = np.divide(_sum(elements), elements.shape[-1], dtype=np.float32)
    return to_output_type(call, average)


def _sum(elements: AnyArray) -> AnyArray:
    """Sum along the last axis. Adding 0 turns -0 into 0, as a sum that starts from 0 does."""
    total: AnyArray = np.add.accumulate(elements, axis=-1)[..., -1] + elements.dtype.type(0)
    return total


@kernel(OperationType.REDUCE_SUM)
def reduce_sum(call: OperationCall) -> AnyArray:
    """Return the sum, rounded at every step."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _sum(_move_axes_last(call, call.array("input")))


@kernel(OperationType.REDUCE_PROD)
def reduce_prod(call: OperationCall) -> AnyArray:
    """Return the product, rounded at every step. It stays 0 after the first 0, even if infinity or NaN follow."""
    elements = _move_axes_last(call, call.array("input"))
    with np.errstate(over="ignore", invalid="ignore"):
        products = np.multiply.accumulate(elements, axis=-1)
    zero = (elements == 0).any(axis=-1) | (products[..., :-1] == 0).any(axis=-1)
    return np.where(zero, elements.dtype.type(0), products[..., -1])


@kernel(OperationType.REDUCE_MAX, OperationType.REDUCE_MIN)
def reduce_extreme(call: OperationCall) -> AnyArray:
    """Return the largest or the smallest element, ignoring NaN, within the finite values of the type."""
    smallest, largest = _FINITE[call.operand("input").type]
    is_max = call.view.type == OperationType.REDUCE_MAX
    reduce, initial = (np.fmax.reduce, smallest) if is_max else (np.fmin.reduce, largest)
    extreme: AnyArray = reduce(_move_axes_last(call, call.array("input")), axis=-1, initial=initial)
    return extreme


@kernel(OperationType.REDUCE_ALL, OperationType.REDUCE_ANY)
def reduce_logical(call: OperationCall) -> AnyArray:
    """Return whether all elements, or any, are true."""
    reduce = np.all if call.view.type == OperationType.REDUCE_ALL else np.any
    return np.asarray(reduce(_move_axes_last(call, call.array("input")), axis=-1))


@kernel(OperationType.ARGMAX, OperationType.ARGMIN)
def arg_extreme(call: OperationCall) -> AnyArray:
    """Return the lowest index of the largest or smallest element. NaN wins at index 0 and loses elsewhere."""
    search, best = (np.argmax, np.inf) if call.view.type == OperationType.ARGMAX else (np.argmin, -np.inf)
    indices = search(*_replace_nan(call, best))
    return np.asarray(indices, np.int32).reshape(np.shape(indices) or (1,))


def _replace_nan(call: OperationCall, best: float) -> tuple[AnyArray, int]:
    """Return the input and the axis. NaN is replaced by `best` at index 0 and by `-best` elsewhere."""
    array = call.array("input")
    axis = call.axis(array.ndim)
    if not np.issubdtype(array.dtype, np.floating):
        return array, axis
    finite = np.where(np.isnan(array), array.dtype.type(-best), array)
    front = (slice(None),) * axis + (slice(0, 1),)
    np.copyto(finite[front], best, where=np.isnan(array[front]))
    return finite, axis
