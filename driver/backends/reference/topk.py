"""Kernels of TOPK_V2."""

from collections.abc import Sequence

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.TOPK_V2)
def topk_v2(call: Call) -> Sequence[AnyArray]:
    """The k largest along the last dimension, largest first, and their indices; the larger index first among equals."""
    array = call.array("input")
    indices = np.argsort(array, axis=-1, kind="stable")[..., : -call.integer("k") - 1 : -1]
    return [np.take_along_axis(array, indices, axis=-1), indices.astype(np.int32)]
