"""Names of Unix sockets in the file system: a service never takes one from another, and removes only its own."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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


@contextmanager
def owned_path(path: Path) -> Iterator[None]:
    """Own the path of a socket, also while nothing listens there, for example because a worker is replaced.

    The lock file PATH.lock shows it to other services. A process that dies without removing it no longer owns the path.

    Raises:
        OSError: a service uses the path, it is not a socket, or the folder cannot be opened.
    """
    lock = path.with_name(f"{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:
        with locked_folder(path.parent):
            descriptor = os.open(lock, flags, 0o600)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
            try:
                remove_stale_socket(path)
            except OSError:
                lock.unlink()
                raise
        try:
            yield
        finally:
            with suppress(OSError), locked_folder(path.parent):  # the folder may be gone
                lock.unlink()


def file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if it does not exist."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
