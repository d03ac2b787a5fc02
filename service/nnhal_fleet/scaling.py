"""Number of hosts of a fleet. Pure code, which simulations run too: no clock, no network.

Hosts are added while executions wait for long. They are given back when fewer have been enough for a while. At its
limit, a fleet whose executions still wait for long takes no more clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from nnhal_service.peers.fleet.member import Member

LONG_WAIT_S = 0.05
"""Mean time in the queue from which hosts are added."""
FULL_WAIT_S = 1.0
"""Mean time in the queue from which a fleet at its limit is full. It is full until the time is half of this."""
GROW_AFTER_S = 3.0
"""Seconds for which executions wait before hosts are added, or clients refused."""
ARRIVAL_S = 180.0
"""Seconds that new hosts may take. Until they have come, no further ones are added."""
ARRIVED = 0.9
"""Part of the hosts that must serve for those of the last growth to count as arrived: in large fleets, one is always
missing. The same part must be busy for the fleet to be full: otherwise, new clients go to the others."""
GROWTH = 2.0
"""Factor by which a fleet grows at once, at most."""
SHRINKAGE = 0.75
"""Factor by which it shrinks at once, at most, unless that is less than a host."""
_MOST_WORK = 2
"""Executions for each CPU of a member that count. The queue of one may be as long as it likes."""
USE = 0.5
"""Executions for each CPU for which hosts are kept. The rest is for the differences between hosts, and for growth."""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Limits that the operator gives.

    Attributes:
        min_hosts: least number of hosts, at least 1.
        shrink_after_s: seconds for which fewer hosts must have been enough before some are given back.
    """

    min_hosts: int
    max_hosts: int
    shrink_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Result of a decision, from which the next one goes on.

    Attributes:
        hosts: number of hosts that the fleet shall have.
        reason: why it has changed last, for people.
        refusal: why the fleet takes no more clients, for people, or "".
        long_since: time since which executions wait for long, or None.
        full_since: time since which they wait so long that a fleet at its limit is full, or None.
        enough_since: time since which fewer hosts are enough, or None.
        enough: number of hosts that have been enough since then.
    """

    hosts: int
    reason: str = ""
    refusal: str = ""
    changed_at: float = 0.0
    long_since: float | None = None
    full_since: float | None = None
    enough_since: float | None = None
    enough: int = 0


def decide(state: ScalingState, members: Sequence[Member], now: float, rules: ScalingRules) -> ScalingState:
    """Decide on the number of hosts, given the last decision and the last reports of all members. `now` is in s."""
    hosts = min(max(state.hosts, rules.min_hosts), rules.max_hosts)
    state = replace(state, hosts=hosts)
    serving = [member for member in members if not member.draining]
    if not serving:
        return replace(state, long_since=None, full_since=None, enough_since=None)
    wait_s = mean_wait_s(serving)
    are_busy = sum(member.executions >= member.cpus for member in serving) >= ARRIVED * len(serving)
    state = replace(
        state,
        long_since=_since(state.long_since, now, holds=wait_s >= LONG_WAIT_S),
        full_since=_since(state.full_since, now, holds=wait_s >= FULL_WAIT_S and are_busy),
    )
    has_arrived = len(serving) >= ARRIVED * hosts or now - state.changed_at >= ARRIVAL_S
    needed = hosts_for(serving, 1.0)
    if (
        needed > len(serving)  # otherwise, some are idle, and new clients go there
        and has_arrived
        and hosts < rules.max_hosts
        and _lasts(state.long_since, now, GROW_AFTER_S)
    ):
        return _grow(state, needed, wait_s, now, rules)
    state = _with_refusal(state, wait_s, now, may_refuse=are_busy and has_arrived and hosts == rules.max_hosts)
    return _shrink(state, serving, now, rules)


def mean_wait_s(members: Sequence[Member]) -> float:
    """Return the mean time that executions have waited lately. A busy member counts more than an idle one."""
    work = sum(member.executions for member in members)
    return sum(member.wait_s * member.executions for member in members) / work if work else 0.0


def hosts_for(members: Sequence[Member], use: float) -> int:
    """Return the number of hosts, like those of members, that the work of members needs.

    `use` is the number of executions for each CPU. Clients stay where they are, so that a long queue of a member says
    nothing of the others: it counts for a second host, not for more.
    """
    cpus = sum(member.cpus for member in members) / len(members)
    work = sum(min(member.executions, _MOST_WORK * member.cpus) for member in members)
    return max(1, ceil(work / (use * cpus)))


def _grow(state: ScalingState, needed: int, wait_s: float, now: float, rules: ScalingRules) -> ScalingState:
    hosts = min(max(state.hosts + 1, needed), ceil(state.hosts * GROWTH), rules.max_hosts)
    reason = f"{hosts} instead of {state.hosts} hosts: executions wait {wait_s:.2f} s"
    return ScalingState(hosts, reason, changed_at=now)


def _shrink(state: ScalingState, serving: Sequence[Member], now: float, rules: ScalingRules) -> ScalingState:
    enough = max(hosts_for(serving, USE), rules.min_hosts)
    if enough >= state.hosts or state.long_since is not None:
        return replace(state, enough_since=None, enough=0)
    enough = max(enough, state.enough)
    since = now if state.enough_since is None else state.enough_since
    if now - max(since, state.changed_at) < rules.shrink_after_s:
        return replace(state, enough_since=since, enough=enough)
    hosts = max(enough, min(state.hosts - 1, ceil(state.hosts * SHRINKAGE)))
    reason = f"{hosts} instead of {state.hosts} hosts: the others were not needed for {now - since:.0f} s"
    return ScalingState(hosts, reason, changed_at=now)


def _with_refusal(state: ScalingState, wait_s: float, now: float, *, may_refuse: bool) -> ScalingState:
    if not may_refuse or wait_s < FULL_WAIT_S / 2:
        return replace(state, refusal="")
    if not state.refusal and not _lasts(state.full_since, now, GROW_AFTER_S):
        return state
    return replace(state, refusal=f"all {state.hosts} hosts of its limit are busy; executions wait {wait_s:.1f} s")


def _since(since: float | None, now: float, *, holds: bool) -> float | None:
    """Return the time since which a condition holds."""
    if not holds:
        return None
    return now if since is None else since


def _lasts(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds
