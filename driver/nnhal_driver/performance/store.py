"""Store of performance figures, which never change once they are measured.

Clients drop a device whose description changes. So the figures of a set of backends are measured once for each machine
and version, when first requested, and written to a file. Later processes, and other devices with the same backends,
read them from there. An invalid file is replaced by a new measurement. Files are replaced atomically, and locked while
a process measures.
"""

import errno
import fcntl
import json
import logging
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from nnhal.types import Capabilities, OperandPerformance, PerformanceInfo
from nnhal_cache.file_io import replace_private_file
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import FLT_MAX, speed_fingerprint
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS, GROUP_OF_TYPE
from nnhal_driver.performance.measurement import Figures, measure

_MAX_FILE_BYTES = 65_536
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

        `version`: that of the driver and of all backends; each version has figures of its own.
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
            with _file_lock(self._folder / f"{name}.lock"):
                figures = _read_figures(path, key)
                if figures is None:
                    figures = measure(backends)
                    _write_figures(path, key, figures)
        except OSError as error:
            _log.warning("performance figures cannot be kept in %s: %s; the next start measures again", path, error)
        return measure(backends) if figures is None else figures


def _read_figures(path: Path, key: Mapping[str, str]) -> Figures | None:
    """Return the figures of a file. None if it is missing, a link, of another user, damaged or has another key."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        text = file.read(_MAX_FILE_BYTES)
    try:
        content = json.loads(text)
        if content["key"] != key or content["figures"].keys() != BENCHMARK_MODELS.keys():
            return None
        return {group: _parse(figures) for group, figures in content["figures"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _log.warning("%s is damaged (%s) and will be replaced", path, error)
        return None


def _parse(figures: Sequence[float] | None) -> PerformanceInfo | None:
    """Return the figures of a group. Raise ValueError or TypeError if the HAL does not allow them."""
    if figures is None:
        return None
    exec_time, power_usage = figures
    if not all(isinstance(figure, float) and 0 < figure <= FLT_MAX for figure in (exec_time, power_usage)):
        raise ValueError(f"invalid figures {figures}")
    return PerformanceInfo(exec_time, power_usage)


def _write_figures(path: Path, key: Mapping[str, str], figures: Figures) -> None:
    """Replace a file atomically. Only this user can read it."""
    content = {group: info and (info.exec_time, info.power_usage) for group, info in figures.items()}
    text = json.dumps({"key": key, "figures": content}, indent=1)
    replace_private_file(path, text.encode())


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Hold a file lock, so that one process at a time measures and the others read its result."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _capabilities(figures: Figures) -> Capabilities:
    """Return figures in the HAL's form. The list lacks types that no backend supports. Other fields are FLT_MAX."""
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
