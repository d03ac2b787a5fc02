"""Versions of files that others may replace at any time."""

import os
from pathlib import Path


def file_version(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change with a file, and with the links that lead to it; None if it cannot be found."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
