"""Registry of the members of a fleet."""

from random import Random

from nnhal_fleet.registry import EXPIRY_S, MAX_TOLD, MemberRegistry, report_interval_s
from nnhal_service.peers.fleet.member import Member


def test_members_that_do_not_report_are_forgotten() -> None:
    now = 0.0
    registry = MemberRegistry(lambda: now)
    registry.report(Member("b", "b", "b:1"))
    registry.report(Member("a", "a", "a:1", sessions=1))
    now = EXPIRY_S
    registry.report(Member("a", "a", "a:1", sessions=2))
    assert [(member.id, member.sessions) for member in registry.members()] == [("a", 2), ("b", 0)]
    now += 0.1
    assert [member.id for member in registry.members()] == ["a"]


def test_a_member_that_leaves_is_forgotten_at_once() -> None:
    registry = MemberRegistry(lambda: 0.0)
    registry.report(Member("a", "a", "a:1"))
    registry.remove("a")
    registry.remove("unknown")
    assert registry.members() == ()


def test_members_of_a_large_fleet_report_less_often_and_are_not_forgotten_between_two_reports() -> None:
    now = 0.0
    registry = MemberRegistry(lambda: now)
    for number in range(1000):
        registry.report(Member(str(number), "", f"{number}:1"))
    now = report_interval_s(1000) + EXPIRY_S
    assert len(registry.members()) == 1000 and report_interval_s(10) < 1 < report_interval_s(1000) / 2
    now *= 2
    assert registry.members() == ()


def test_members_of_a_large_fleet_are_told_of_some_others_and_of_rare_things() -> None:
    registry = MemberRegistry(lambda: 0.0, Random(1))
    for number in range(1000):
        accelerators = ("Npu",) if number in (7, 8) else ()
        registry.report(Member(str(number), "", f"{number}:1", accelerators=accelerators, backends={"CpuRef": "1"}))
    known: set[str] = set()
    before: set[str] = set()
    for turn in range(200):
        told = {member.id for member in registry.members_for("5")}
        assert {"5", "7", "8"} <= told and len(told) <= MAX_TOLD + 3
        assert turn == 0 or len(before & told) > MAX_TOLD / 2, "clients are told of changes"
        known |= before
        before = told
    assert len(known) > 900
