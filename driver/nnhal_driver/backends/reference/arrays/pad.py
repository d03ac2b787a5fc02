"""Kernels of PAD, PAD_V2 and MIRROR_PAD."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel, pad_array
from nnhal_driver.operations.arrays.pad import MirrorMode, padding_pairs
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.PAD)
def pad(call: OperationCall) -> AnyArray:
    """Pad the input with the stored value of 0."""
    array = call.array("input")
    return pad_array(array, padding_pairs(call, array.ndim), call.operand("input").zero_point)


@kernel(OperationType.PAD_V2)
def pad_v2(call: OperationCall) -> AnyArray:
    """Pad the input with `pad_value`. For quantized types this is a stored value, and its low 8 bits are used."""
    array = call.array("input")
    return pad_array(array, padding_pairs(call, array.ndim), call.array("pad_value").astype(array.dtype))


@kernel(OperationType.MIRROR_PAD)
def mirror_pad(call: OperationCall) -> AnyArray:
    """Pad the input with its mirror images."""
    array = call.array("input")
    is_reflected = call.integer("mode") == MirrorMode.REFLECT
    for axis, pair in enumerate(padding_pairs(call, array.ndim)):
        indices = np.pad(np.arange(array.shape[axis]), pair, "reflect" if is_reflected else "symmetric")
        array = np.take(array, indices, axis=axis)
    return array
