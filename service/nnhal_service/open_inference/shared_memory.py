"""System shared memory: regions below /dev/shm that clients of this machine register, for inputs and outputs.

The service reads and writes them with system calls. It maps nothing: a client may truncate its region at any time,
which would kill a process that has mapped it. What a client changes meanwhile does not change a request that was
checked.
"""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from nnhal.errors import HalError, invalid_argument
from nnhal.types import Bytes, ErrorKind, ErrorStatus
from nnhal_driver.mapped_memory import read_at
from nnhal_service.identity.accounts import permission_denied
from nnhal_service.sessions.limits import Limits

FOLDER = Path("/dev/shm")
_NAME_LENGTH = 256
_KEY = re.compile(r"/?(?!\.{1,2}$)[^/\0]{1,255}")


class SharedRegion(NamedTuple):
    """Part of a file, as its client has registered it."""

    name: str
    key: str
    offset: int
    byte_size: int


class RegionPart(NamedTuple):
    """Part of a region that a request names."""

    region: str
    offset: int
    size: int


class _OpenFile:
    """Open file. It is closed when nothing uses it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


def require_short(kind: str, name: str) -> None:
    """Check a name that the service keeps for a client.

    Raises:
        HalError: INVALID_ARGUMENT: it is too long.
    """
    if len(name) > _NAME_LENGTH:
        raise invalid_argument(f"{kind} {name!r:.100} has {len(name)} characters; at most {_NAME_LENGTH}")


class SharedRegions:
    """Regions of one client. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._regions: dict[str, tuple[SharedRegion, _OpenFile]] = {}

    def register(self, region: SharedRegion, user: int | None) -> None:
        """Open a region of a user. It must be the user's own file: the service may be able to open those of others.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such region; PERMISSION_DENIED; RESOURCE_EXHAUSTED.
        """
        if user is None:
            raise permission_denied("shared memory is for clients on the same machine, whose user the service can see")
        if region.name in self._regions:
            raise invalid_argument(f"shared memory region '{region.name}' already in manager")
        self._limits.require("shared", len(self._regions) + 1, "the client would have")
        require_short("shared memory region", region.name)
        if not _KEY.fullmatch(region.key):
            raise invalid_argument(f"invalid key {region.key!r} of a shared memory region; expected the name of one")
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = _OpenFile(os.open(FOLDER / region.key.lstrip("/"), flags))
        except OSError as error:
            raise invalid_argument(f"Unable to open shared memory region: '{region.key}': {error.strerror}") from None
        status = os.fstat(file.descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != user:
            raise permission_denied(f"shared memory region {region.key!r} is not one of user {user}")
        if region.offset + region.byte_size > status.st_size:
            raise invalid_argument(
                f"failed to register shared memory region '{region.name}': invalid args: it has {status.st_size} bytes"
            )
        self._regions[region.name] = region, file

    def unregister(self, name: str) -> None:
        """Forget a region, or all of them for "". One that is unknown is ignored."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str) -> list[SharedRegion]:
        """Return a region, or all of them for "".

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such region.
        """
        return [self._find(name)[0]] if name else [region for region, _ in list(self._regions.values())]

    def read(self, part: RegionPart) -> Bytes:
        """Return a copy of a part.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such part.
        """
        file, start = self._locate(part)
        data = read_at(file.descriptor, part.size, start)
        if data.size < part.size:
            raise invalid_argument(f"shared memory region '{part.region}' has become smaller")
        return data

    def write(self, part: RegionPart, data: Bytes) -> None:
        """Write an output at the beginning of a part.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such part, or it is full.
        """
        file, start = self._locate(part)
        done = 0
        while done < data.size:
            try:
                done += os.pwrite(file.descriptor, data[done:].data, start + done)
            except OSError as error:
                raise invalid_argument(
                    f"cannot write to shared memory region '{part.region}': {error.strerror}"
                ) from None

    def _find(self, name: str) -> tuple[SharedRegion, _OpenFile]:
        found = self._regions.get(name)
        if found is None:
            reason = f"Unable to find system shared memory region: '{name}'"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, reason, kind=ErrorKind.UNKNOWN_HANDLE)
        return found

    def _locate(self, part: RegionPart) -> tuple[_OpenFile, int]:
        region, file = self._find(part.region)
        if part.offset + part.size > region.byte_size:
            raise invalid_argument(
                f"Invalid offset + byte size for shared memory region: '{part.region}': {part.offset} + {part.size}; "
                f"it has {region.byte_size} bytes"
            )
        return file, region.offset + part.offset
