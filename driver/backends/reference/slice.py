"""Kernels of SLICE, STRIDED_SLICE, GATHER and REVERSE: views of the input wherever there can be one."""

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from driver.operations.slice import strides
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.SLICE)
def slice_(call: Call) -> AnyArray:
    """The block of `size` elements from `begin` on."""
    blocks = zip(call.vector("begin"), call.vector("size"), strict=True)
    return call.array("input")[tuple(slice(begin, None if size == -1 else begin + size) for begin, size in blocks)]


@kernel(OperationType.STRIDED_SLICE)
def strided_slice(call: Call) -> AnyArray:
    """Every stride-th element of a block, with dimensions dropped."""
    along = strides(call)
    taken = call.array("input")[tuple(stride.taken for stride in along)]
    return taken.reshape(tuple(stride.size for stride in along if not stride.dropped) or (1,))


@kernel(OperationType.GATHER)
def gather(call: Call) -> AnyArray:
    """The slices that the indices name."""
    return np.take(call.array("input"), call.array("indices"), call.axis(len(call.shape("input"))))


@kernel(OperationType.REVERSE)
def reverse(call: Call) -> AnyArray:
    """The other way round along one axis."""
    return np.flip(call.array("input"), tuple(call.vector("axis")))
