"""File of performance figures: validated when read, replaced atomically, locked while a process measures."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from nnhal.types import PerformanceInfo
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS
from nnhal_driver.performance.measurement import Figures

FLT_MAX = 3.4028234663852886e38
"""The HAL's figure for operations that a device does not support (hal-surface 5.7)."""

_MAX_FILE_BYTES = 65_536

_log = logging.getLogger(__name__)


def read_figures(path: Path, key: Mapping[str, str]) -> Figures | None:
    """Return the figures of a file.

    None if there is none, or it is a link, belongs to another user, is damaged or has another key.

    Raises:
        OSError: the file cannot be read.
    """
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


def write_figures(path: Path, key: Mapping[str, str], figures: Figures) -> None:
    """Replace a file atomically. Only this user can read it.

    Raises:
        OSError: the file cannot be written.
    """
    content = {group: info and (info.exec_time, info.power_usage) for group, info in figures.items()}
    text = json.dumps({"key": key, "figures": content}, indent=1)
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, suffix=".new", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a file lock, so that one process at a time measures and the others read its result.

    Raises:
        OSError: the folder cannot be created or written to.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
