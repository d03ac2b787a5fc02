"""Reference backend with seeded defects: sums above a threshold are wrong by two steps, and MAXIMUM is slow."""

import time
from typing import Any

import numpy as np

from nnhal.types import OperationType
from nnhal_backend.v1 import API_VERSION
from nnhal_driver.backends.reference.backend import CpuRef

THRESHOLD = 60
SLOW_S = 0.02


class BackendFactory(CpuRef):
    """CpuRef with another id, and with defects."""

    id = "DefectRef"
    _divides = False

    def workload(self, operation: Any) -> Any:
        """Return the kernel of the operation, with its defect."""
        kernel = super().workload(operation)

        def wrong(call: Any) -> Any:
            result: Any = kernel(call)
            return np.where(result > THRESHOLD, result - 2, result).astype(result.dtype)

        def slow(call: Any) -> Any:
            time.sleep(SLOW_S)
            return kernel(call)

        return {OperationType.ADD: wrong, OperationType.MAXIMUM: slow}.get(operation.type, kernel)


def GetBackendId() -> str:
    """Return the id."""
    return BackendFactory.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface."""
    return API_VERSION
