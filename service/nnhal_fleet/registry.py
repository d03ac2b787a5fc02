"""Registry of the members of a fleet: their last reports, and which of them each member is told of."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from nnhal_service.peers.fleet.member import Member

EXPIRY_S = 3.0
"""Seconds after its last report at which a member of a small fleet counts as dead."""
MAX_TOLD = 128
"""Number of members that each member is told of, chosen at random: otherwise, the answers to all members together grow
with the square of their number. If few members have a backend, device or accelerator, some of these are told, too."""
_REPLACED = 16
"""Number of these that are replaced by others in each answer, so that all learn of new members."""
_INTERVAL_S = 0.5
_REPORTS_PER_S = 200
"""Reports that the registry should get in a second."""
_MISSED_REPORTS = 3
_RARE = 8
_INDEX_S = 1.0


def report_interval_s(members: int) -> float:
    """Return the seconds between two reports of a member of a fleet of some size."""
    return max(_INTERVAL_S, members / _REPORTS_PER_S)


class MemberRegistry:
    """The last reports of all members. Thread safe.

    Args:
        random: chooses the members that a member is told of.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, random: Random | None = None) -> None:
        self._clock = clock
        self._random = random or Random()
        self._lock = threading.Lock()
        self._reports: dict[str, tuple[float, Member]] = {}
        self._told: dict[str, Sequence[str]] = {}
        self._index: tuple[float, Mapping[str, Collection[str]]] = (float("-inf"), {})

    def report(self, member: Member) -> None:
        """Replace the report of a member."""
        with self._lock:
            self._reports[member.id] = self._clock(), member

    def remove(self, id_: str) -> None:
        """Forget a member that has ended. An unknown one is ignored."""
        with self._lock:
            self._reports.pop(id_, None)
            self._told.pop(id_, None)

    @property
    def count(self) -> int:
        """Number of members that have reported lately, or not so lately."""
        return len(self._reports)

    def members(self) -> tuple[Member, ...]:
        """Return the members that have reported lately, by their ids."""
        with self._lock:
            self._forget_dead()
            return tuple(member for _, (_, member) in sorted(self._reports.items()))

    def members_for(self, id_: str) -> tuple[Member, ...]:
        """Return the members that a member is told of, with itself: all of a small fleet, some of a large one."""
        with self._lock:
            self._forget_dead()
            reports = self._reports
            if len(reports) <= MAX_TOLD:
                return tuple(member for _, member in reports.values())
            kept = [each for each in self._told.get(id_, ()) if each in reports][_REPLACED:]
            chosen = dict.fromkeys(kept)
            chosen.update(dict.fromkeys(self._random.sample(list(reports), MAX_TOLD - len(kept))))
            self._told[id_] = list(chosen)
            told = {id_, *chosen, *self._rare()} & reports.keys()
            return tuple(reports[each][1] for each in told)

    def _forget_dead(self) -> None:
        expiry_s = max(EXPIRY_S, _MISSED_REPORTS * report_interval_s(len(self._reports)))
        oldest = self._clock() - expiry_s
        for id_ in [id_ for id_, (at, _) in self._reports.items() if at < oldest]:
            del self._reports[id_]
            self._told.pop(id_, None)

    def _rare(self) -> Collection[str]:
        """Return members with things that few have, at most `_RARE` for each. The index is a second old at most."""
        at, rare = self._index
        if self._clock() - at >= _INDEX_S:
            having = defaultdict(list)
            for id_, (_, member) in self._reports.items():
                for name in (*member.accelerators, *member.backends, *member.devices):
                    having[name].append(id_)
            few = _RARE * len(self._reports) // MAX_TOLD
            rare = {name: ids[:_RARE] for name, ids in having.items() if len(ids) < few}
            self._index = self._clock(), rare
        return {id_ for ids in rare.values() for id_ in ids}
