"""Kernels of PAD, PAD_V2 and MIRROR_PAD."""

from typing import Any

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.arrays.pad import MirrorMode, padding_pairs
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.PAD)
def pad(call: OperationCall) -> AnyArray:
    """Pad the input with the stored value of 0."""
    return _padded(call, "constant", constant_values=call.operand("input").zero_point)


@kernel(OperationType.PAD_V2)
def pad_v2(call: OperationCall) -> AnyArray:
    """Pad the input with `pad_value`. For quantized types this is a stored value, and its low 8 bits are used."""
    return _padded(call, "constant", constant_values=call.array("pad_value").astype(call.array("input").dtype))


@kernel(OperationType.MIRROR_PAD)
def mirror_pad(call: OperationCall) -> AnyArray:
    """Pad the input with its mirror images."""
    return _padded(call, "reflect" if call.integer("mode") == MirrorMode.REFLECT else "symmetric")


def _padded(call: OperationCall, mode: Any, **options: Any) -> AnyArray:
    array = call.array("input")
    return np.pad(array, padding_pairs(call, array.ndim), mode, **options)
