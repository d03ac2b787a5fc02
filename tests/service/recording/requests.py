"""Requests for executions that are recorded."""

import numpy as np

from nnhal.types import DataLocation, Memory, Request, RequestArgument, ReturnedPool


def request(*arrays: np.ndarray, size: int | None = None) -> Request:
    return Request(
        tuple(RequestArgument(False, DataLocation(i, 0, array.nbytes)) for i, array in enumerate(arrays)),
        (RequestArgument(False, DataLocation(len(arrays), 0, size or 0)),),
        (*map(Memory.of, arrays), ReturnedPool(size)),
    )
