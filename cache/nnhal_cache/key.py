"""The key that seals model caches: 32 random bytes in a file that only its owner can read.

Anyone who has the key can write files that a device will run. Machines that share cache entries need the same key.
"""

import os
import secrets
import stat
from pathlib import Path

from nnhal_cache.errors import CacheError, UnsafeDirectoryError, cache_errors
from nnhal_cache.file_io import replace_private_file
from nnhal_cache.layout import CacheLayout

KEY_BYTES = 32

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path) -> bytes:
    """Return the key in a file.

    Raises:
        CacheError: the file does not exist, is not a key, or other users may access it.
    """
    with cache_errors(path, "the key file"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would block otherwise
        try:
            _check_file(path, os.fstat(descriptor))
            key = os.read(descriptor, KEY_BYTES + 1)
        finally:
            os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise CacheError(f"the key file {path} has the wrong size; expected {KEY_BYTES} bytes")
    return key


def load_or_create_key(root: Path) -> bytes:
    """Return the key of a cache directory. The first process that needs one creates it.

    Raises:
        CacheError: the key cannot be created or read.
    """
    layout, path = CacheLayout(root), root / "key"
    if layout.exists() and path.exists():
        return read_key(path)
    layout.create()
    with layout.lock():
        if not path.exists():
            replace_private_file(path, secrets.token_bytes(KEY_BYTES))
    return read_key(path)


def _check_file(path: Path, status: os.stat_result) -> None:
    """Reject a key that other users can read. Root may own it, because root can read every file."""
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeDirectoryError(f"the key file {path} is not a file")
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafeDirectoryError(f"the key file {path} belongs to user {status.st_uid}; expected {os.geteuid()}")
    # root may give the file to a group, so that a service which is not root can read it
    others = _OTHERS & ~stat.S_IRGRP if status.st_uid == 0 != os.geteuid() else _OTHERS
    if status.st_mode & others:
        mode = stat.S_IMODE(status.st_mode)
        raise UnsafeDirectoryError(
            f"other users may access the key file {path} (mode {mode:o}); make it {mode & ~others:o}"
        )
