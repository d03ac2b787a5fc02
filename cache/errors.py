"""What can be wrong with a cache directory. Texts are for people: a service shows them as warnings."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CacheError(Exception):
    """The cache cannot do what it was asked to. Nothing that was there before is lost."""


class RefusedDirectoryError(CacheError):
    """The directory, or a file in it, is not safe to use: another owner, writable by others, or not a directory."""


class NewerLayoutError(CacheError):
    """A newer release wrote this directory."""


class ReadOnlyError(CacheError):
    """The directory cannot be written."""


class FullError(CacheError):
    """The disk is full, or a quota is used up."""


class TooLargeError(CacheError):
    """More than the cache may hold."""


class BusyError(CacheError):
    """Another process holds the directory's lock for too long."""


_BY_ERRNO = {
    errno.EROFS: (ReadOnlyError, "is on a file system that is read-only"),
    errno.EACCES: (ReadOnlyError, "may not be used by this user"),
    errno.EPERM: (ReadOnlyError, "may not be used by this user"),
    errno.ENOSPC: (FullError, "has no room: the disk is full"),
    errno.EDQUOT: (FullError, "has no room: the disk quota is used up"),
    errno.EFBIG: (FullError, "has no room: a file would pass the size that this process may write"),
}


def explained(path: Path, error: OSError) -> CacheError:
    """An error of the system as one of ours."""
    kind, text = _BY_ERRNO.get(error.errno or 0, (CacheError, f"cannot be used: {error.strerror or error}"))
    return kind(f"the cache {path} {text}")


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turns what the system says about a path into a CacheError."""
    try:
        yield
    except OSError as error:
        raise explained(path, error) from error
