"""The key that seals model caches: 32 random bytes in a file that only its owner reads, made once.

Who has it can make files that a device will run. A fleet whose machines share caches shares a key file.
"""

import os
import secrets
import stat
from pathlib import Path

from cache.errors import CacheError, RefusedDirectoryError, explaining
from cache.layout import Layout, write_private

KEY_BYTES = 32

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path) -> bytes:
    """The key in a file.

    Raises:
        CacheError: there is none, it is not a key, or others than its owner may use the file.
    """
    with explaining(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # what is no file must not keep us waiting
        try:
            _check(path, os.fstat(descriptor))
            key = os.read(descriptor, KEY_BYTES + 1)
        finally:
            os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise CacheError(f"the key file {path} does not have {KEY_BYTES} bytes")
    return key


def make_key(root: Path) -> bytes:
    """The key of a cache directory; made by whichever process is first.

    Raises:
        CacheError: it cannot be made, or as `read_key`.
    """
    layout, path = Layout(root), root / "key"
    if layout.exists() and path.exists():
        return read_key(path)
    layout.make()
    with layout.locked():
        if not path.exists():
            write_private(path, secrets.token_bytes(KEY_BYTES))
    return read_key(path)


def _check(path: Path, found: os.stat_result) -> None:
    """Refuses a key that others know. Root may own it: it reads everything anyway."""
    if not stat.S_ISREG(found.st_mode):
        raise RefusedDirectoryError(f"the key file {path} is not a file")
    if found.st_uid not in (0, os.geteuid()):
        raise RefusedDirectoryError(f"the key file {path} belongs to user {found.st_uid}, not to user {os.geteuid()}")
    # a group that root gave the file to, so that a service which is not root can read it, is meant
    others = _OTHERS & ~stat.S_IRGRP if found.st_uid == 0 != os.geteuid() else _OTHERS
    if found.st_mode & others:
        mode = stat.S_IMODE(found.st_mode)
        raise RefusedDirectoryError(f"others may use the key file {path} (mode {mode:o}); make it {mode & ~others:o}")
