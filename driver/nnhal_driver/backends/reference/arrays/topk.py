"""Kernels of TOPK_V2."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.TOPK_V2)
def topk_v2(call: OperationCall) -> Sequence[AnyArray]:
    """Return the k largest elements along the last dimension, in descending order, and their indices.

    Of equal elements, the one with the larger index comes first.
    """
    array = call.array("input")
    indices = np.argsort(array, axis=-1, kind="stable")[..., : -call.integer("k") - 1 : -1]
    return [np.take_along_axis(array, indices, axis=-1), indices.astype(np.int32)]
