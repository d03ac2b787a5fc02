"""Growth and shrinkage of a fleet: how many hosts the cluster shall have, and which of them leave."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from nnhal_fleet.scaling import ScalingRules, ScalingState, decide
from nnhal_service.peers.fleet.member import Member

ASK_AGAIN_S = 30.0
"""Seconds after which the cluster is asked again: its head forgets requests when it starts again."""


class HostScaler:
    """Number of hosts of a fleet. One thread calls `update`; any thread may read.

    Args:
        ask: asks the cluster for a number of hosts. It may have more than that, but shall end idle ones only.
    """

    def __init__(
        self, rules: ScalingRules, hosts: int, ask: Callable[[int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules
        self._ask = ask
        self._clock = clock
        self._state = ScalingState(max(hosts, rules.min_hosts), changed_at=clock())
        self._asked = 0
        self._asked_at = 0.0
        self.leaving: frozenset[str] = frozenset()

    @property
    def hosts(self) -> int:
        """Number of hosts that the fleet shall have."""
        return self._state.hosts

    @property
    def refusal(self) -> str:
        """Why the fleet takes no new clients, or ""."""
        return self._state.refusal

    def to_plain(self) -> dict[str, Any]:
        """Return what operators see."""
        rules, state = self._rules, self._state
        limits = {"min_hosts": rules.min_hosts, "max_hosts": rules.max_hosts}
        return {"hosts": state.hosts, "reason": state.reason, "refusal": state.refusal, **limits}

    def update(self, members: Sequence[Member], hosts: Sequence[str]) -> list[str]:
        """Decide anew. Return the ids of the members whose clients have left, and whose hosts can be given back.

        `hosts` has the ids of the members on all hosts that have a service, or will have one soon.
        """
        now = self._clock()
        self._state = decide(self._state, members, now, self._rules)
        self._choose_leaving(members, hosts)
        asked = max(self.hosts, len(hosts))  # those that drain must not be ended yet
        if asked != self._asked or now - self._asked_at >= ASK_AGAIN_S:
            self._ask(asked)
            self._asked, self._asked_at = asked, now
        kept = {member.id for member in members if not member.draining or member.sessions}  # others do not serve
        return sorted(self.leaving - kept)

    def _choose_leaving(self, members: Sequence[Member], hosts: Sequence[str]) -> None:
        """Have the surplus hosts leave: those that do so already, then those with the fewest sessions."""
        surplus = max(0, len(hosts) - self.hosts)
        sessions = {member.id: member.sessions for member in members}
        order = sorted(hosts, key=lambda id_: (id_ not in self.leaving, sessions.get(id_, -1), id_))
        self.leaving = frozenset(order[:surplus])
