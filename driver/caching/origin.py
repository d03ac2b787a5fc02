"""What a cached model depends on besides its files: versions of the driver and its backends, and the kind of CPU."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from driver.backends.api import Backend


@dataclass(frozen=True, slots=True)
class BackendOrigin:
    """One backend. `fingerprint`: what else its sections depend on."""

    id: str
    version: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.version} ({self.fingerprint})" if self.fingerprint else self.version


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a cached model was made.

    Attributes:
        driver: version of the driver.
        backends: of the device, in order of preference: another order places operations elsewhere.
        cpu: digest of architecture and features.
    """

    driver: str
    backends: tuple[BackendOrigin, ...]
    cpu: str

    def difference(self, ours: "Origin") -> str:
        """Why what was made there cannot be used here; "" where it can."""
        if self.driver != ours.driver:
            return f"it was made by driver {self.driver}, this is {ours.driver}"
        ids, our_ids = ([one.id for one in origin.backends] for origin in (self, ours))
        if ids != our_ids:
            return f"it was made for the backends {', '.join(ids)}; the device has {', '.join(our_ids)}"
        for backend, our in zip(self.backends, ours.backends, strict=True):
            if backend != our:
                return f"backend {backend.id} was {backend}, is {our}"
        return "" if self.cpu == ours.cpu else "it was made on a machine whose CPU has other features"


def origin_here(driver: str, backends: Sequence[Backend]) -> Origin:
    """The origin of what a device with these backends makes on this machine."""
    described = tuple(BackendOrigin(one.id, one.version, one.fingerprint()) for one in backends)
    return Origin(driver, described, cpu_digest())


@cache
def cpu_digest() -> str:
    """Of the architecture and the features of this machine's first CPU."""
    features: list[str] = []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        features = next((line.split(":")[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return hashlib.sha256(" ".join([platform.machine(), *sorted(features)]).encode()).hexdigest()[:16]
