"""News of members: which clients are told what, and when."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import cast

import pytest

from nnhal_driver.scheduling.timers import Timers
from nnhal_service.peers.fleet import member_news
from nnhal_service.peers.fleet.member_news import NEWS_NS, MemberNews
from tests.service.fake_timers import FakeTimers

STEP_S = NEWS_NS / 1e9


class Immediate:
    """Runs functions at once."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, function: Callable[[], None]) -> None:
        self.count += 1
        function()


class Club:
    """Members whose clients are told of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members: Sequence[str] = ("a", "b")
        self.told: list[Sequence[str]] = []
        self.timers, self.executor = FakeTimers(), Immediate()
        monkeypatch.setattr(member_news, "now_ns", self.timers.now)
        timers, executor = cast(Timers, self.timers), cast(Executor, self.executor)
        self.news = MemberNews(lambda told: self.members, timers, executor)
        self.news.add(self.told.append, ("b", "a"))


@pytest.fixture
def club(monkeypatch: pytest.MonkeyPatch) -> Club:
    return Club(monkeypatch)


def test_a_client_is_told_once_of_each_change(club: Club) -> None:
    club.timers.advance(STEP_S)
    assert club.told == []
    club.members = ("b", "c")
    for _ in range(3):
        club.timers.advance(STEP_S)
    assert club.told == [("b", "c")]


def test_a_client_keeps_what_it_knows_if_no_member_is_known(club: Club) -> None:
    club.members = ()
    club.timers.advance(STEP_S)
    club.members = ("c",)
    club.timers.advance(STEP_S)
    assert club.told == [("c",)]


def test_a_client_that_has_left_is_told_nothing_and_nobody_looks(club: Club) -> None:
    club.news.remove(club.told.append)
    club.members = ("c",)
    for _ in range(3):
        club.timers.advance(STEP_S)
    assert club.told == [] and club.executor.count == 1


def test_a_failed_look_is_not_the_last_one(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(told: Sequence[str]) -> Sequence[str]:
        raise OSError("the file cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(club.news, "_find", fail)
        club.timers.advance(STEP_S)
    club.members = ("c",)
    club.timers.advance(STEP_S)
    assert club.told == [("c",)]


def test_the_service_stops(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Callable[[], None]) -> None:
        raise RuntimeError("the pool has been shut down")

    monkeypatch.setattr(club.executor, "submit", refuse)
    club.timers.advance(STEP_S)
