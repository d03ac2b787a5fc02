"""Store of performance figures, which never change once they are measured.

Clients drop a device whose description changes. So the figures of a set of backends are measured once for each machine
and version, when first requested, and written to a file. Later processes, and other devices with the same backends,
read them from there. An invalid file is replaced by a new measurement.
"""

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from nnhal.types import Capabilities, OperandPerformance, PerformanceInfo
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import speed_fingerprint
from nnhal_driver.performance.benchmark_models import GROUP_OF_TYPE
from nnhal_driver.performance.figures_file import FLT_MAX, file_lock, read_figures, write_figures
from nnhal_driver.performance.measurement import Figures, measure

_MODELS_VERSION = "2"
"""Version of the measurement. Files of another one are measured again."""

_log = logging.getLogger(__name__)


class PerformanceStore:
    """Performance figures of devices. Thread safe. One object serves all devices of a process.

    Args:
        folder: folder of the files, created on demand. Without one, figures last as long as this object.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._figures: dict[str, Figures] = {}

    def capabilities(self, backends: Sequence[Backend], version: str) -> Capabilities:
        """Return the capabilities of a device. The first call for a set of backends may take a second.

        Args:
            backends: the backends of the device, in order of preference.
            version: version of the driver and of all backends; each version has figures of its own.
        """
        key = {
            "machine": _processor(),
            "version": version,
            "models": _MODELS_VERSION,
            "engines": " ".join(speed_fingerprint(backend) for backend in backends),
        }
        name = f"performance-{sha256(json.dumps(key).encode()).hexdigest()[:16]}"
        with self._lock:
            if name not in self._figures:
                self._figures[name] = self._load_or_measure(name, key, backends)
            return _capabilities(self._figures[name])

    def _load_or_measure(self, name: str, key: Mapping[str, str], backends: Sequence[Backend]) -> Figures:
        """Return the figures of the file, or measure and write them."""
        if self._folder is None:
            return measure(backends)
        path = self._folder / f"{name}.json"
        figures = None
        try:
            with file_lock(self._folder / f"{name}.lock"):
                figures = read_figures(path, key)
                if figures is None:
                    figures = measure(backends)
                    write_figures(path, key, figures)
        except OSError as error:
            _log.warning("performance figures cannot be kept in %s: %s; the next start measures again", path, error)
        return measure(backends) if figures is None else figures


def _capabilities(figures: Figures) -> Capabilities:
    """Return figures in the HAL's form.

    The list omits types that no backend supports, which means FLT_MAX. Other fields contain FLT_MAX instead.
    """
    unsupported = PerformanceInfo(FLT_MAX, FLT_MAX)
    listed = [(type_, figures[group]) for type_, group in sorted(GROUP_OF_TYPE.items())]
    relaxed = figures["relaxed"] or unsupported
    return Capabilities(
        relaxed,
        relaxed,
        tuple(OperandPerformance(type_, info) for type_, info in listed if info is not None),
        figures["if"] or unsupported,
        figures["while"] or unsupported,
    )


def _processor() -> str:
    """Return the kernel's name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return os.uname().machine
