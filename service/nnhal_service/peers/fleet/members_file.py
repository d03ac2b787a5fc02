"""File with the members of a fleet, which an agent of the fleet replaces and the workers of a service read."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from nnhal_service.peers.fleet.member import MemberTable
from nnhal_service.replaced_files import replace_file

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
        self._read: tuple[tuple[int, int], MemberTable | None] = ((0, 0), None)

    def table(self) -> MemberTable | None:
        """Return the members; None if there is no file, or it is damaged."""
        status = self._status()
        if status is None:
            return None
        version = status.st_ino, status.st_mtime_ns
        known, table = self._read
        if known != version:
            try:
                table = MemberTable.from_plain(json.loads(self._path.read_text("utf-8")))
            except (OSError, ValueError, TypeError, KeyError):
                table = None
            self._read = version, table
        return table

    @property
    def is_stale(self) -> bool:
        """True if the loads in the file are too old to count."""
        status = self._status()
        return status is None or self._clock() - status.st_mtime > STALE_S

    def _status(self) -> os.stat_result | None:
        try:
            return self._path.stat()
        except OSError:
            return None


def write_members(path: Path, table: MemberTable) -> None:
    """Replace the file.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(path, json.dumps(table.to_plain()))  # `json.dump` takes ten times as long
