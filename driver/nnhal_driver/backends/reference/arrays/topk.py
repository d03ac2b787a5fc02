"""Kernels of TOPK_V2."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.division import divide_large, look_up, plain
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.sorting import last_sorted


@kernel(OperationType.TOPK_V2)
def topk_v2(call: OperationCall) -> Sequence[AnyArray]:
    """Return the k largest elements along the last dimension, in descending order, and their indices.

    Of equal elements, the one with the larger index comes first.
    """
    array, k = call.array("input"), call.integer("k")
    rows = array.reshape(-1, array.shape[-1])
    indices = divide_large(last_sorted(plain(rows), k, call.check)[:, ::-1], call.check)
    starts = rows.shape[1] * np.arange(len(rows))[:, np.newaxis]
    values, shape = look_up(plain(rows.reshape(-1)), starts + indices), (*array.shape[:-1], k)
    return [values.reshape(shape), indices.astype(np.int32).reshape(shape)]
