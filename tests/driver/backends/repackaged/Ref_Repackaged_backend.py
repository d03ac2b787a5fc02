"""CpuRef as a dynamic backend, as Arm NN does with its own: `make nightly` runs all vectors on it."""

from driver.backends.api import API_VERSION
from driver.backends.reference.backend import CpuRef


class Repackaged(CpuRef):
    """The same under another id."""

    id = "Repackaged"


def GetBackendId() -> str:
    """Entry point."""
    return Repackaged.id


def GetVersion() -> tuple[int, int]:
    """Entry point."""
    return API_VERSION


BackendFactory = Repackaged
