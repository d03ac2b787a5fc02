"""Growth and shrinkage of a fleet: what the cluster is asked for, and which hosts leave when."""

from dataclasses import replace

from nnhal_fleet.host_scaler import ASK_AGAIN_S, HostScaler
from nnhal_fleet.scaling import ScalingRules
from nnhal_service.peers.fleet.member import Member

BUSY = Member("a", "a", "a:1", sessions=5, executions=9, wait_s=0.5)
IDLE = [Member(id_, id_, f"{id_}:1", sessions=sessions) for id_, sessions in (("a", 3), ("b", 1), ("c", 2))]


class Imagined:
    """A scaler whose clock is set by hand."""

    def __init__(self, hosts: int) -> None:
        self.now = 0.0
        self.asked: list[int] = []
        self.scaler = HostScaler(ScalingRules(1, 3, 60.0), hosts, self.asked.append, lambda: self.now)

    def update(self, members: list[Member], hosts: str, seconds: float = 0.0) -> list[str]:
        """Let time pass, and decide at its end."""
        self.now += seconds
        return self.scaler.update(members, hosts.split())


def test_the_cluster_is_asked_for_hosts_while_executions_wait() -> None:
    imagined = Imagined(0)
    imagined.update([BUSY], "a")
    imagined.update([BUSY], "a", 5)
    assert imagined.asked == [1, 2] and imagined.scaler.hosts == 2
    imagined.update([BUSY], "a", ASK_AGAIN_S)
    assert imagined.asked == [1, 2, 2], "it may have forgotten"


def test_hosts_leave_after_their_clients() -> None:
    imagined = Imagined(3)
    imagined.update(IDLE, "a b c")
    assert imagined.update(IDLE, "a b c", 60) == [] and imagined.scaler.leaving == {"b"}, "it has the fewest sessions"
    draining = replace(IDLE[1], draining=True)
    assert imagined.update([IDLE[0], draining, IDLE[2]], "a b c") == [], "a client is still there"
    assert imagined.asked[-1] == 3, "the cluster must not end the host yet"
    gone = replace(draining, sessions=0)
    assert imagined.update([IDLE[0], gone, IDLE[2]], "a b c") == ["b"]
    assert imagined.update([IDLE[0], IDLE[2]], "a c") == []
    assert imagined.asked[-1] == 2 and not imagined.scaler.leaving


def test_a_host_without_a_service_leaves_at_once() -> None:
    imagined = Imagined(3)
    imagined.update(IDLE[:2], "a b c")
    assert imagined.update(IDLE[:2], "a b c", 60) == ["c"]


def test_a_host_that_leaves_stays_when_it_is_needed_again() -> None:
    imagined = Imagined(2)
    imagined.update(IDLE[:2], "a b")
    imagined.update(IDLE[:2], "a b", 60)
    assert imagined.scaler.leaving == {"b"}
    busy = [BUSY, replace(IDLE[1], draining=True)]
    imagined.update(busy, "a b", 1)
    imagined.update(busy, "a b", 5)
    assert not imagined.scaler.leaving and imagined.scaler.hosts == 2


def test_what_operators_see() -> None:
    assert Imagined(2).scaler.to_plain() == {"hosts": 2, "reason": "", "refusal": "", "min_hosts": 1, "max_hosts": 3}
