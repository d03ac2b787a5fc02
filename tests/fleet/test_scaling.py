"""Number of hosts of a fleet: when it grows, shrinks, and takes no more clients."""

from collections.abc import Iterable

import pytest

from nnhal_fleet.scaling import (
    ARRIVAL_S,
    FULL_WAIT_S,
    GROW_AFTER_S,
    LONG_WAIT_S,
    ScalingRules,
    ScalingState,
    decide,
    hosts_for,
    mean_wait_s,
)
from nnhal_service.peers.fleet.member import Member

RULES = ScalingRules(1, 8, shrink_after_s=60.0)
STEP_S = 0.5


def member(number: int, executions: int = 0, wait_s: float = 0.0, *, draining: bool = False, cpus: int = 2) -> Member:
    id_ = f"m{number}"
    return Member(id_, id_, f"{id_}:1", draining=draining, cpus=cpus, executions=executions, wait_s=wait_s)


def fleet(hosts: int, executions: int = 0, wait_s: float = 0.0) -> list[Member]:
    """Return members with the same load."""
    return [member(number, executions, wait_s) for number in range(hosts)]


def run(
    state: ScalingState, members: Iterable[Member], seconds: float, start: float = 1000.0, rules: ScalingRules = RULES
) -> ScalingState:
    """Decide twice a second about the same reports, for some time or until the number of hosts changes."""
    members, hosts, now = list(members), state.hosts, start
    while now <= start + seconds and state.hosts == hosts:
        state = decide(state, members, now, rules)
        now += STEP_S
    return state


@pytest.mark.parametrize(
    ("hosts", "members", "expected"),
    [
        (1, fleet(1, executions=2), 1),  # busy, but nothing waits
        (1, fleet(1, executions=3, wait_s=LONG_WAIT_S), 2),
        (1, fleet(1, executions=40, wait_s=2.0), 2),  # at most twice as many at once
        (3, fleet(3, executions=4, wait_s=0.1), 6),  # 12 executions need 6 hosts with 2 CPUs
        (6, fleet(6, executions=40, wait_s=2.0), 8),  # the limit
        (8, fleet(8, executions=40, wait_s=2.0), 8),
        (3, [member(0, 40, 0.3), member(1, 1), member(2, 1)], 3),  # new clients go to the other two
        (3, [member(0, 40, 0.3), member(1, 2), member(2, 2)], 4),  # those are busy, too
        (3, [member(0, 1, 0.3), member(1, 19, 0.0), member(2)], 3),  # few of the executions wait
        (2, [member(0, 9, 0.3), member(1, draining=True)], 2),  # the second has not come
        (0, fleet(1), 1),  # the least
        (12, fleet(8, executions=4), 8),  # the operator has lowered the limit
        (4, [], 4),  # nothing is known
    ],
)
def test_growth(hosts: int, members: list[Member], expected: int) -> None:
    assert run(ScalingState(hosts, changed_at=1000.0), members, 10).hosts == expected


def test_a_moment_of_waiting_is_no_reason_to_grow() -> None:
    state = run(ScalingState(1), fleet(1, 3, 0.1), GROW_AFTER_S - STEP_S)
    state = decide(state, fleet(1, 3, 0.0), 1003.0, RULES)
    assert run(state, fleet(1, 3, 0.1), GROW_AFTER_S - STEP_S, 1003.5).hosts == 1


def test_hosts_that_do_not_come_do_not_stop_the_growth_for_ever() -> None:
    grown = run(ScalingState(2), fleet(2, 9, 0.3), 10)
    assert grown.hosts == 4 and grown.reason == "4 instead of 2 hosts: executions wait 0.30 s"
    assert run(grown, fleet(2, 9, 0.3), ARRIVAL_S - 10, grown.changed_at).hosts == 4
    assert run(grown, fleet(2, 9, 0.3), ARRIVAL_S, grown.changed_at).hosts == 5


def test_one_missing_host_of_many_does_not_stop_the_growth() -> None:
    rules = ScalingRules(1, 1000)
    assert run(ScalingState(100), fleet(99, 3, 0.1), 10, rules=rules).hosts == 149


def test_hosts_are_given_back_step_by_step() -> None:
    state, now = ScalingState(8), 1000.0
    seen = []
    for _ in range(7):
        state = run(state, fleet(state.hosts), 100, now)
        now = state.changed_at
        seen.append(state.hosts)
    assert seen == [6, 5, 4, 3, 2, 1, 1]
    assert state.reason == "1 instead of 2 hosts: the others were not needed for 60 s"


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (fleet(4, executions=1), 4),  # an execution for each two CPUs is what is kept
        (fleet(4, executions=2), 4),
        ([member(0, 2), *fleet(3)], 3),
        (fleet(4, 1, 0.1), 4),  # something waits
    ],
)
def test_the_largest_work_of_the_time_decides_how_many_hosts_stay(peak: list[Member], expected: int) -> None:
    state = run(ScalingState(4), fleet(4), 30)
    state = decide(state, peak, 1031.0, RULES)
    assert run(state, fleet(4), 30, 1031.5).hosts == expected


def test_at_least_the_smallest_number_of_hosts_stays() -> None:
    rules = ScalingRules(3, 8, shrink_after_s=10)
    assert run(ScalingState(4), fleet(4), 100, rules=rules).hosts == 3
    assert run(ScalingState(3), fleet(3), 100, rules=rules).hosts == 3


def test_a_fleet_at_its_limit_is_full_while_executions_wait() -> None:
    state = run(ScalingState(8), fleet(8, 30, FULL_WAIT_S), GROW_AFTER_S - STEP_S)
    assert state.refusal == "", "it may be over in a moment"
    state = run(state, fleet(8, 30, 1.25), GROW_AFTER_S, 1000.0 + GROW_AFTER_S)
    assert state.refusal == "all 8 hosts of its limit are busy; executions wait 1.2 s"
    assert decide(state, fleet(8, 30, 0.6), 1010.0, RULES).refusal
    assert decide(state, fleet(8, 30, 0.4), 1010.0, RULES).refusal == ""


def test_a_fleet_with_an_idle_host_is_not_full() -> None:
    members = [*fleet(2, 30, 2.0), member(2, 1)]
    rules = ScalingRules(3, 3)
    assert run(ScalingState(3), members, 10, rules=rules).refusal == "", "new clients go to the third one"
    full = run(ScalingState(3), [*members[:2], member(2, 2)], 10, rules=rules)
    assert full.refusal
    assert decide(full, members, 1020.0, rules).refusal == ""
    some = [*fleet(9, 30, 2.0), member(9)]
    assert run(ScalingState(10), some, 10, rules=ScalingRules(1, 10)).refusal, "in a large fleet, one is always idle"


def test_a_fleet_that_grows_is_not_full() -> None:
    grown = run(ScalingState(7), fleet(7, 30, 2.0), 10)
    assert grown.hosts == 8
    assert run(grown, fleet(7, 30, 2.0), 20, grown.changed_at).refusal == "", "the last host comes"
    assert run(grown, fleet(7, 30, 2.0), ARRIVAL_S + 10, grown.changed_at).refusal


def test_a_fleet_of_fixed_size_is_full_in_the_same_way() -> None:
    state = run(ScalingState(0), fleet(2, 30, 2.0), 10, rules=ScalingRules(2, 2))
    state = run(state, fleet(2, 30, 2.0), 10, 1020.0, rules=ScalingRules(2, 2))
    assert state.hosts == 2 and state.refusal.startswith("all 2 hosts")


def test_figures() -> None:
    assert mean_wait_s([member(0, 3, 1.0), member(1, 1, 0.2)]) == pytest.approx(0.8)
    assert mean_wait_s(fleet(2)) == 0.0
    assert hosts_for([member(0, 3, cpus=4), member(1, 2, cpus=2)], 0.5) == 4
    assert hosts_for([member(0, 100, cpus=2)], 1.0) == 2, "the queue of one counts for another one"
    assert hosts_for(fleet(2), 0.5) == 1
