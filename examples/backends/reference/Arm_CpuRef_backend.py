"""The reference backend as a plug-in. Arm NN has the same of its own. `make nightly` runs all vectors on it.

Its id differs from that of the built-in CpuRef, which would keep it. Only this example imports from nnhal_driver.
"""

from nnhal_backend.v1 import API_VERSION
from nnhal_driver.backends.reference.backend import CpuRef


class BackendFactory(CpuRef):
    """CpuRef with another id."""

    id = "DynamicCpuRef"


def GetBackendId() -> str:
    """Return the id."""
    return BackendFactory.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface."""
    return API_VERSION
