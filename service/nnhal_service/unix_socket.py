"""Names of Unix sockets in the file system: a service never takes one from another, and removes only its own."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nnhal.probe import connection_problem


def remove_stale_socket(path: Path) -> None:
    """Remove the socket of a service that has ended without removing it.

    Raises:
        OSError: a service uses it, or the path is not a socket.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "the path exists and is not a socket")
        if not isinstance(connection_problem(f"unix:{path}"), ConnectionRefusedError):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other services that bind a socket in it.

    Raises:
        OSError: the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if it does not exist."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
