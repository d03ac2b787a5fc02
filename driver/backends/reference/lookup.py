"""Kernels of EMBEDDING_LOOKUP and HASHTABLE_LOOKUP."""

from collections.abc import Sequence

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.EMBEDDING_LOOKUP)
def embedding_lookup(call: Call) -> AnyArray:
    """The rows that the lookups name."""
    return np.take(call.array("values"), call.array("lookups"), axis=0)


@kernel(OperationType.HASHTABLE_LOOKUP)
def hashtable_lookup(call: Call) -> Sequence[AnyArray]:
    """The rows whose keys are looked up; a stored 0 throughout, and no hit, where there is no such key."""
    lookups, keys, values = (call.array(name) for name in ("lookups", "keys", "values"))
    rows = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
    hits = keys[rows] == lookups
    found = values[rows]
    found[~hits] = 0
    return [found, hits.astype(np.uint8)]
