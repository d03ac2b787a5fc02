"""Kernels of PAD, PAD_V2 and MIRROR_PAD."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.arrays.pad import MirrorMode, padding_pairs
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.PAD)
def pad(call: OperationCall) -> AnyArray:
    """Pad the input with the stored value of 0."""
    return _pad_with(call, np.array(call.operand("input").zero_point))


@kernel(OperationType.PAD_V2)
def pad_v2(call: OperationCall) -> AnyArray:
    """Pad the input with `pad_value`. For quantized types this is a stored value, and its low 8 bits are used."""
    return _pad_with(call, call.array("pad_value"))


def _pad_with(call: OperationCall, value: AnyArray) -> AnyArray:
    array = call.array("input")
    paddings = padding_pairs(call, array.ndim)
    shape = [before + length + after for length, (before, after) in zip(array.shape, paddings, strict=True)]
    out = np.full(shape, value.astype(array.dtype))
    inside = tuple(slice(before, before + length) for length, (before, _) in zip(array.shape, paddings, strict=True))
    out[inside] = array
    return out


@kernel(OperationType.MIRROR_PAD)
def mirror_pad(call: OperationCall) -> AnyArray:
    """Pad the input with its mirror images."""
    array, paddings = call.array("input"), padding_pairs(call, len(call.shape("input")))
    if call.integer("mode") == MirrorMode.REFLECT:
        return np.pad(array, paddings, "reflect")
    return np.pad(array, paddings, "symmetric")
