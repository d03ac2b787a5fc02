"""Kernels of SLICE, STRIDED_SLICE, GATHER and REVERSE. They return views of the input where possible."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.arrays.slice import strides
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.SLICE)
def slice_(call: OperationCall) -> AnyArray:
    """Return the block of `size` elements that starts at `begin`."""
    blocks = zip(call.vector("begin"), call.vector("size"), strict=True)
    return call.array("input")[tuple(slice(begin, None if size == -1 else begin + size) for begin, size in blocks)]


@kernel(OperationType.STRIDED_SLICE)
def strided_slice(call: OperationCall) -> AnyArray:
    """Return every stride-th element of a block, with dimensions dropped."""
    slices = strides(call)
    block = call.array("input")[tuple(stride.elements for stride in slices)]
    return block.reshape(tuple(stride.size for stride in slices if not stride.dropped) or (1,))


@kernel(OperationType.GATHER)
def gather(call: OperationCall) -> AnyArray:
    """Return the slices at the indices along the axis."""
    return np.take(call.array("input"), call.array("indices"), call.axis(len(call.shape("input"))))


@kernel(OperationType.REVERSE)
def reverse(call: OperationCall) -> AnyArray:
    """Reverse the input along one axis."""
    return np.flip(call.array("input"), tuple(call.vector("axis")))
