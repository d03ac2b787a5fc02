"""Kernels of PAD, PAD_V2 and MIRROR_PAD."""

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from driver.operations.pad import MirrorMode, paddings_of
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.PAD)
def pad(call: Call) -> AnyArray:
    """The input among values that stand for 0."""
    return _padded(call, np.array(call.operand("input").zero_point))


@kernel(OperationType.PAD_V2)
def pad_v2(call: Call) -> AnyArray:
    """The input among copies of `pad_value`: a stored value where quantised, of which the low 8 bits count."""
    return _padded(call, call.array("pad_value"))


def _padded(call: Call, value: AnyArray) -> AnyArray:
    array = call.array("input")
    paddings = paddings_of(call, array.ndim)
    shape = [before + length + after for length, (before, after) in zip(array.shape, paddings, strict=True)]
    out = np.full(shape, value.astype(array.dtype))
    out[tuple(slice(before, before + length) for length, (before, _) in zip(array.shape, paddings, strict=True))] = (
        array
    )
    return out


@kernel(OperationType.MIRROR_PAD)
def mirror_pad(call: Call) -> AnyArray:
    """The input among its mirror images."""
    array, paddings = call.array("input"), paddings_of(call, len(call.shape("input")))
    if call.integer("mode") == MirrorMode.REFLECT:
        return np.pad(array, paddings, "reflect")
    return np.pad(array, paddings, "symmetric")
