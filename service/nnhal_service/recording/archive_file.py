"""Archives as files: one for each process and identity, in a folder with limits that several services may share."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnhal.recording.archive import SUFFIX
from nnhal.recording.members import HEADER, RecordingError, pack_content, pack_member

_PART = 8
"""Part of the limits, of size and of age, after which a process begins a new file, so that old ones can go."""
_SLACK = 64
"""Part of the size that files may grow by until the folder is looked at again."""
_MAX_FILE_BYTES = 2**30
"""Size of a file at most. The kernel writes up to 2 GiB at once."""


@dataclass(frozen=True)
class RecordingFolder:
    """Folder with archives, one folder for each identity.

    Attributes:
        max_bytes: size of all archives together.
        max_age_s: age in seconds at which archives are removed.
    """

    root: Path
    max_bytes: int
    max_age_s: float

    @property
    def file_bytes(self) -> int:
        """Size at which a file ends."""
        return min(self.max_bytes // _PART, _MAX_FILE_BYTES)

    def make_room(self, needed: int) -> None:
        """Remove archives that are too old, and then the oldest ones until there is room, but none that is in use.

        Raises:
            RecordingError: there is no room.
        """
        files = sorted((status.st_mtime, status.st_size, path) for path, status in self._archives())
        total, oldest = sum(size for _, size, _ in files), time.time() - self.max_age_s
        for modified, size, path in files:
            if (modified < oldest or total + needed > self.max_bytes) and _remove_unused(path):
                total -= size
        if total + needed > self.max_bytes:
            raise RecordingError(f"{self.root} has {total} of {self.max_bytes} bytes (record_bytes), all in use")

    def _archives(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.root.glob(f"*/*{SUFFIX}"):
            with suppress(FileNotFoundError):  # another process has removed it
                yield path, path.stat()


def _remove_unused(path: Path) -> bool:
    """Remove a file, unless a process writes to it. Return whether it is gone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@dataclass
class ArchiveFile:
    """Archive that this process writes. The caller serializes its calls. Close it when done.

    A member is written with one call of the kernel, and cut off again if that fails.

    Attributes:
        path: the file.
        size: bytes in it.
        records: number of its records.
        models: digests of its models.

    Raises:
        OSError: it cannot be created.
        RecordingError: the folder has no room.
    """

    folder: RecordingFolder
    header: Mapping[str, Any]
    size: int = 0
    records: int = 0
    models: set[str] = field(default_factory=set)
    _checked: int = 0

    def __post_init__(self) -> None:
        self._started_s = time.monotonic()
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        self.folder.make_room(self._slack)
        own = self.folder.root / quote(self.header["identity"], safe=":@ ")
        own.mkdir(0o700, parents=True, exist_ok=True)
        self.path = own / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self.append(pack_member(HEADER, pack_content(self.header, {})))
        except BaseException:
            self.close()
            raise

    @property
    def _slack(self) -> int:
        return self.folder.max_bytes // _SLACK

    def has_room(self, size: int) -> bool:
        """Return whether the file may get members of a size; else it is time for a new one."""
        is_old = time.monotonic() - self._started_s > self.folder.max_age_s / _PART
        return not self.records or (self.size + size <= self.folder.file_bytes and not is_old)

    def append(self, members: bytes) -> None:
        """Add members.

        Raises:
            OSError: they cannot be written. The file is as before.
            RecordingError: they are too large, or the folder has no room.
        """
        if len(members) > self.folder.file_bytes:
            raise RecordingError(f"a record and its model have {len(members)} bytes; at most {self.folder.file_bytes}")
        if self.size + len(members) > self._checked:
            self.folder.make_room(len(members) + self._slack)
            self._checked = self.size + len(members) + self._slack
        try:
            written = os.write(self._descriptor, members)
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        if written < len(members):
            os.ftruncate(self._descriptor, self.size)
            raise OSError("the disk is full")
        self.size += written

    def close(self) -> None:
        """Close the file. Others may remove it then."""
        os.close(self._descriptor)
