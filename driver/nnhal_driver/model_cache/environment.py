"""Environment that a cached model depends on: versions of the driver and its backends, and the kind of CPU."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import fingerprint
from nnhal_driver.backends.identity import full_version


@dataclass(frozen=True, slots=True)
class BackendEnvironment:
    """One backend, with its full version and fingerprint."""

    id: str
    version: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.version} ({self.fingerprint})" if self.fingerprint else self.version


@dataclass(frozen=True, slots=True)
class BuildEnvironment:
    """Environment in which a cached model was built.

    Attributes:
        backends: of the device, in order of preference. Another order places operations on other backends.
        cpu: digest of architecture and features.
    """

    driver: str
    backends: tuple[BackendEnvironment, ...]
    cpu: str

    def difference(self, current: "BuildEnvironment") -> str:
        """Return why a model built here cannot be used in the current environment, or ""."""
        if self.driver != current.driver:
            return f"it was made by driver {self.driver}, this is {current.driver}"
        ids, current_ids = ([backend.id for backend in each.backends] for each in (self, current))
        if ids != current_ids:
            return f"it was made for the backends {', '.join(ids)}; the device has {', '.join(current_ids)}"
        for built, now in zip(self.backends, current.backends, strict=True):
            if built != now:
                return f"backend {built.id} was {built}, is {now}"
        return "" if self.cpu == current.cpu else "it was made on a machine whose CPU has other features"


def current_environment(driver: str, backends: Sequence[Backend]) -> BuildEnvironment:
    """Return the environment of a device with these backends on this machine."""
    described = tuple(
        BackendEnvironment(backend.id, full_version(backend), fingerprint(backend)) for backend in backends
    )
    return BuildEnvironment(driver, described, cpu_digest())


@cache
def cpu_digest() -> str:
    """Return a digest of the architecture and the features of this machine's first CPU."""
    features: list[str] = []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        features = next((line.split(":")[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return hashlib.sha256(" ".join([platform.machine(), *sorted(features)]).encode()).hexdigest()[:16]
