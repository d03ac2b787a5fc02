"""Registry of the members of a fleet."""

from nnhal_fleet.registry import EXPIRY_S, MemberRegistry
from nnhal_service.fleet.member import Member


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
