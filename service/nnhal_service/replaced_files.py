"""Files that are replaced while others read them."""

import os
import tempfile
from pathlib import Path


def file_version(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change with a file, and with the links that lead to it; None if it cannot be found."""
    try:
        return version_of(os.stat(path))
    except OSError:
        return None


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """Return the numbers of `file_version` for the status of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_file(path: Path) -> bytes:
    """Return the contents of a file of the operator.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, so that a reader sees the old contents or the new ones. If that fails, the old ones stay.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
