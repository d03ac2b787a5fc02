"""Looking before sleeping: what is called, with which flags, and by whom."""

import socket
import threading
from collections.abc import Callable

import pytest

from nnhal import alertness
from nnhal.alertness import Alertness

LOOK, SLEEP = int(socket.MSG_DONTWAIT), 0


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alertness, "_pays", True)


def heard(asked: list[int], arrives: int | None) -> Callable[[int], str]:
    """Receives an answer at the look with this number; None: only once it is slept for."""

    def receive(flags: int) -> str:
        asked.append(flags)
        if flags == LOOK and (arrives is None or asked.count(LOOK) <= arrives):
            raise BlockingIOError
        return "answer"

    return receive


def test_an_answer_that_comes_soon_is_looked_for() -> None:
    asked: list[int] = []
    assert Alertness(60).receive(heard(asked, 3)) == "answer"
    assert asked == [LOOK] * 4


def test_one_that_does_not_is_slept_for_and_so_is_the_next() -> None:
    alert = Alertness(0.01)
    asked: list[int] = []
    assert alert.receive(heard(asked, None)) == "answer"
    assert asked[-1] == SLEEP and set(asked[:-1]) == {LOOK}
    asked.clear()
    assert alert.receive(heard(asked, 0)) == "answer"
    assert asked == [SLEEP]


def test_after_a_short_sleep_it_looks_again() -> None:
    alert = Alertness(0.01)
    asked: list[int] = []
    alert.receive(heard(asked, None))
    alert.receive(heard(asked, 0))
    asked.clear()
    alert.receive(heard(asked, 0))
    assert asked == [LOOK]


def test_only_one_thread_looks() -> None:
    looks, go = threading.Event(), threading.Event()
    asked: list[int] = []

    def slowly(flags: int) -> str:
        looks.set()
        assert go.wait(5)
        return "answer"

    thread = threading.Thread(target=Alertness(60).receive, args=(slowly,))
    thread.start()
    assert looks.wait(5)
    Alertness(60).receive(heard(asked, 0))
    go.set()
    thread.join()
    assert asked == [SLEEP]
    asked.clear()
    Alertness(60).receive(heard(asked, 0))
    assert asked == [LOOK]


def test_with_one_core_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alertness, "_pays", False)
    asked: list[int] = []
    alert = Alertness(60)
    alert.receive(heard(asked, 0))
    alert.receive(heard(asked, 0))
    assert asked == [SLEEP, SLEEP]


def test_an_error_ends_the_look() -> None:
    def broken(flags: int) -> str:
        raise ConnectionResetError

    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            Alertness(60).receive(broken)
