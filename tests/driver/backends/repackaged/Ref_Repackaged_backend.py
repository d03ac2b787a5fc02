"""CpuRef as a dynamic backend, on which `make nightly` runs all vectors. Arm NN does the same with its own."""

from nnhal_backend.v1 import API_VERSION
from nnhal_driver.backends.reference.backend import CpuRef


class Repackaged(CpuRef):
    """CpuRef with another id."""

    id = "Repackaged"


def GetBackendId() -> str:
    """Return the id."""
    return Repackaged.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface."""
    return API_VERSION


BackendFactory = Repackaged
