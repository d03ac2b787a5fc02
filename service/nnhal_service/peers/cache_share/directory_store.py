"""A share in a directory."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nnhal_service.peers.cache_share.stores import StoredObject

_STALE_S = 86400.0
"""Age of the temporary file of a writer that has been killed."""
_TEMPORARY = ".new-"


class DirectoryStore:
    """A store in a directory, for example on NFS. Readers see complete objects only.

    Group and umask decide who else may use it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return some bytes of an object."""
        file = os.open(self._root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would block
        try:
            return os.pread(file, end - start, start)
        finally:
            os.close(file)

    def create(self, name: str, value: bytes) -> bool:
        """Write an object, unless there is one."""
        path = self._root / name
        temporary = self._write(path, value)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # no hard links here: it does not matter if another writer was faster
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def replace(self, name: str, value: bytes) -> None:
        """Write an object, in place of one that exists."""
        path = self._root / name
        self._write(path, value).replace(path)

    def touch(self, name: str, value: bytes) -> None:
        """Give an object the current time."""
        os.utime(self._root / name)

    def modified_at(self, name: str) -> float:
        """Return when an object was written."""
        return (self._root / name).lstat().st_mtime

    def list(self, folder: str) -> Iterator[StoredObject]:
        """Yield all objects, and remove what writers left that were killed long ago."""
        for parent, _, names in os.walk(self._root / folder):
            for name in names:
                path = Path(parent, name)
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    if not name.startswith(_TEMPORARY):
                        yield StoredObject(str(path.relative_to(self._root)), status.st_size, status.st_mtime)
                    elif time.time() - status.st_mtime > _STALE_S:
                        path.unlink()

    def delete(self, name: str) -> None:
        """Remove an object."""
        (self._root / name).unlink(missing_ok=True)

    def _write(self, path: Path, value: bytes) -> Path:
        """Write a temporary file beside a path, and return its own path."""
        path.parent.mkdir(0o770, parents=True, exist_ok=True)
        temporary = path.with_name(_TEMPORARY + secrets.token_hex(8))
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660), "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary
