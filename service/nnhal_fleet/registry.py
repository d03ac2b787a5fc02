"""Registry of the members of a fleet: their last reports."""

import threading
import time
from collections.abc import Callable

from nnhal_service.fleet.member import Member

EXPIRY_S = 3.0
"""Seconds after its last report at which a member counts as dead."""


class MemberRegistry:
    """The last reports of all members. Thread safe.

    Args:
        clock: returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: dict[str, tuple[float, Member]] = {}

    def report(self, member: Member) -> None:
        """Replace the report of a member."""
        with self._lock:
            self._reports[member.id] = self._clock(), member

    def remove(self, id_: str) -> None:
        """Forget a member that has ended. An unknown one is ignored."""
        with self._lock:
            self._reports.pop(id_, None)

    def members(self) -> tuple[Member, ...]:
        """Return the members that have reported lately, by their ids."""
        with self._lock:
            oldest = self._clock() - EXPIRY_S
            self._reports = {id_: each for id_, each in self._reports.items() if each[0] >= oldest}
            return tuple(member for _, (_, member) in sorted(self._reports.items()))
