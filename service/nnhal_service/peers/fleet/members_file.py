"""File with the members of a fleet, which an agent of the fleet replaces and the workers of a service read."""

import time
from collections.abc import Callable
from pathlib import Path

from nnhal_service.peers.fleet.member import MemberTable
from nnhal_service.replaced_files import file_version, replace_file

STALE_S = 10.0
"""Age in seconds from which the loads in a file do not count. Its agent then hears nothing of the fleet."""


class MembersFile:
    """Reader of the file. Thread safe. It reads the file again after it was replaced.

    Args:
        path: the file, which may not exist yet.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._read: tuple[tuple[int, ...], MemberTable | None] = ((), None)

    def table(self) -> MemberTable | None:
        """Return the members; None if there is no file, or it is damaged."""
        version = file_version(self._path)
        if version is None:
            return None
        known, table = self._read
        if known != version:
            try:
                table = MemberTable.from_json(self._path.read_bytes())
            except (OSError, ValueError):
                table = None
            self._read = version, table
        return table

    @property
    def is_stale(self) -> bool:
        """True if the loads in the file are too old to count."""
        version = file_version(self._path)
        return version is None or self._clock() - version[3] / 1e9 > STALE_S


def write_members(path: Path, table: MemberTable) -> None:
    """Replace the file.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(path, table.to_json())
