"""Errors of a cache directory. Services show their messages as warnings."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CacheError(Exception):
    """The cache cannot do what the caller asked for. Existing entries are intact."""


class UnsafeDirectoryError(CacheError):
    """The directory, or a file in it, has another owner, is writable by others, or has the wrong type."""


class NewerLayoutError(CacheError):
    """A newer release wrote this directory."""


class ReadOnlyError(CacheError):
    """The directory is not writable."""


class FullError(CacheError):
    """The disk is full, or a quota is exceeded."""


class TooLargeError(CacheError):
    """The entry is larger than the whole cache may be."""


class BusyError(CacheError):
    """Another process has held the directory's lock for too long."""


_BY_ERRNO = {
    errno.EROFS: (ReadOnlyError, "is on a read-only file system"),
    errno.EACCES: (ReadOnlyError, "is not accessible to this user"),
    errno.EPERM: (ReadOnlyError, "is not accessible to this user"),
    errno.ENOSPC: (FullError, "cannot be written: the disk is full"),
    errno.EDQUOT: (FullError, "cannot be written: the disk quota is exceeded"),
    errno.EFBIG: (FullError, "cannot be written: the file exceeds the size limit of this process"),
}


@contextmanager
def cache_errors(path: Path, subject: str = "the cache") -> Iterator[None]:
    """Turn operating system errors at a path into a CacheError, whose message begins with `subject`."""
    try:
        yield
    except OSError as error:
        kind, text = _BY_ERRNO.get(error.errno or 0, (CacheError, f"cannot be used: {error.strerror or error}"))
        raise kind(f"{subject} {path} {text}") from error
