"""Kernels of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN.

Sums and products go through the elements in row-major order and round at every step, in the input's own type: numpy's
`accumulate` does, its `reduce` does not.
"""

import numpy as np

from driver.backends.reference.fixed_point import RANGES
from driver.backends.reference.kernel import Floats, floats, is_quantized, kernel, narrowed
from driver.operations.call import Call
from driver.operations.reduction import axes_of, reduced
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType

_FINITE = {
    **RANGES,
    OperandType.TENSOR_FLOAT32: (float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)),
    OperandType.TENSOR_FLOAT16: (float(np.finfo(np.float16).min), float(np.finfo(np.float16).max)),
}
"""Smallest and largest finite value of the types that REDUCE_MAX and REDUCE_MIN take."""


def _reduced_last(call: Call, array: AnyArray) -> AnyArray:
    """[.., n]: the n elements, in row-major order, that go into each element of the output."""
    axes = axes_of(call, array.ndim)
    kept = [i for i in range(array.ndim) if i not in axes]
    return array.transpose(*kept, *axes).reshape(*reduced(call), -1)


@kernel(OperationType.MEAN)
def mean(call: Call) -> AnyArray:
    """The sum by the number; of quantised values the sum of what is stored, cut towards zero."""
    if is_quantized(call, "input"):
        stored = _reduced_last(call, call.array("input"))
        total = stored.sum(axis=-1, dtype=np.int64)
        quotient: AnyArray = np.sign(total) * (np.abs(total) // stored.shape[-1])
        return quotient.astype(DTYPES[call.operand("output").type])
    elements = _reduced_last(call, floats(call, "input"))
    with np.errstate(over="ignore", invalid="ignore"):
        average: Floats = np.divide(_sum(elements), elements.shape[-1], dtype=np.float32)
    return narrowed(call, average)


def _sum(elements: AnyArray) -> AnyArray:
    """Along the last axis; the 0 that is added makes a 0 of -0, as where a sum starts from 0."""
    total: AnyArray = np.add.accumulate(elements, axis=-1)[..., -1] + elements.dtype.type(0)
    return total


@kernel(OperationType.REDUCE_SUM)
def reduce_sum(call: Call) -> AnyArray:
    """The sum, rounded at every step."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _sum(_reduced_last(call, call.array("input")))


@kernel(OperationType.REDUCE_PROD)
def reduce_prod(call: Call) -> AnyArray:
    """The product, rounded at every step; 0 from the first 0 on, whatever follows (infinity and NaN too)."""
    elements = _reduced_last(call, call.array("input"))
    with np.errstate(over="ignore", invalid="ignore"):
        products = np.multiply.accumulate(elements, axis=-1)
    zero = (elements == 0).any(axis=-1) | (products[..., :-1] == 0).any(axis=-1)
    return np.where(zero, elements.dtype.type(0), products[..., -1])


@kernel(OperationType.REDUCE_MAX)
def reduce_max(call: Call) -> AnyArray:
    """The largest element but NaN, at least the smallest finite value of the type."""
    smallest, _ = _FINITE[OperandType(call.operand("input").type)]
    largest: AnyArray = np.fmax.reduce(_reduced_last(call, call.array("input")), axis=-1, initial=smallest)
    return largest


@kernel(OperationType.REDUCE_MIN)
def reduce_min(call: Call) -> AnyArray:
    """The smallest element but NaN, at most the largest finite value of the type."""
    _, largest = _FINITE[OperandType(call.operand("input").type)]
    smallest: AnyArray = np.fmin.reduce(_reduced_last(call, call.array("input")), axis=-1, initial=largest)
    return smallest


@kernel(OperationType.REDUCE_ALL)
def reduce_all(call: Call) -> AnyArray:
    """Whether all elements are true."""
    return np.asarray(_reduced_last(call, call.array("input")).all(axis=-1))


@kernel(OperationType.REDUCE_ANY)
def reduce_any(call: Call) -> AnyArray:
    """Whether an element is true."""
    return np.asarray(_reduced_last(call, call.array("input")).any(axis=-1))


@kernel(OperationType.ARGMAX)
def argmax(call: Call) -> AnyArray:
    """The index of the largest element, the lowest of several; NaN wins at index 0 and loses elsewhere."""
    return _index(call, np.argmax(*_comparable(call, np.inf)))


@kernel(OperationType.ARGMIN)
def argmin(call: Call) -> AnyArray:
    """The index of the smallest element, the lowest of several; NaN wins at index 0 and loses elsewhere."""
    return _index(call, np.argmin(*_comparable(call, -np.inf)))


def _comparable(call: Call, best: float) -> tuple[AnyArray, int]:
    """The input and the axis; NaN becomes `best` at index 0 and its opposite elsewhere."""
    array = call.array("input")
    axis = call.axis(array.ndim)
    if not np.issubdtype(array.dtype, np.floating):
        return array, axis
    at = np.arange(array.shape[axis]).reshape([-1] + [1] * (array.ndim - 1 - axis))
    return np.where(np.isnan(array), np.where(at == 0, best, -best).astype(array.dtype), array), axis


def _index(call: Call, found: AnyArray | np.intp) -> AnyArray:
    shape = np.shape(found) or (1,)
    return np.asarray(found, np.int32).reshape(shape)
