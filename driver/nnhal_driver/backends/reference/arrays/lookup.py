"""Kernels of EMBEDDING_LOOKUP and HASHTABLE_LOOKUP."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.EMBEDDING_LOOKUP)
def embedding_lookup(call: OperationCall) -> AnyArray:
    """Return the rows whose indices are looked up."""
    return np.take(call.array("values"), call.array("lookups"), axis=0)


@kernel(OperationType.HASHTABLE_LOOKUP)
def hashtable_lookup(call: OperationCall) -> Sequence[AnyArray]:
    """Return the rows whose keys are looked up, and the hits. A missing key gives a row of stored zeros."""
    lookups, keys, values = (call.array(name) for name in ("lookups", "keys", "values"))
    rows = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
    hits = keys[rows] == lookups
    found = hits.reshape(-1, *[1] * (values.ndim - 1))
    return [np.where(found, np.take(values, rows, axis=0), values.dtype.type(0)), hits.astype(np.uint8)]
