"""Spinning before blocking: the flags of each call, and the thread that spins."""

import socket
import threading
from collections.abc import Callable

import pytest

from nnhal.shm import spin_wait
from nnhal.shm.spin_wait import SpinThenBlock

SPIN, BLOCK = int(socket.MSG_DONTWAIT), 0


class FakeClock:
    """Clock that advances by one second each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0

    def perf_counter(self) -> float:
        self.now_s += 1
        return self.now_s


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin_wait, "time", FakeClock())


@pytest.fixture(autouse=True)
def several_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin_wait, "_can_spin", True)


def receiver(calls: list[int], empty_polls: int | None) -> Callable[[int], str]:
    """Return a function that receives an answer after some empty polls, or, for None, only when it blocks."""

    def receive(flags: int) -> str:
        calls.append(flags)
        if flags == SPIN and (empty_polls is None or calls.count(SPIN) <= empty_polls):
            raise BlockingIOError
        return "answer"

    return receive


def test_quick_answer_is_received_by_spinning() -> None:
    calls: list[int] = []
    assert SpinThenBlock(60).receive(receiver(calls, 3)) == "answer"
    assert calls == [SPIN] * 4


def test_blocks_after_a_slow_answer_and_for_the_next_one() -> None:
    waiter = SpinThenBlock(5)
    calls: list[int] = []
    assert waiter.receive(receiver(calls, None)) == "answer"
    assert calls == [SPIN] * 4 + [BLOCK]
    calls.clear()
    assert waiter.receive(receiver(calls, 0)) == "answer"
    assert calls == [BLOCK]


def test_spins_again_after_a_short_block() -> None:
    waiter = SpinThenBlock(5)
    calls: list[int] = []
    waiter.receive(receiver(calls, None))
    waiter.receive(receiver(calls, 0))
    calls.clear()
    waiter.receive(receiver(calls, 0))
    assert calls == [SPIN]


def test_only_one_thread_spins() -> None:
    spinning, finish = threading.Event(), threading.Event()
    calls: list[int] = []

    def receive_slowly(flags: int) -> str:
        spinning.set()
        assert finish.wait(60)
        return "answer"

    thread = threading.Thread(target=SpinThenBlock(60).receive, args=(receive_slowly,))
    thread.start()
    assert spinning.wait(60)
    SpinThenBlock(60).receive(receiver(calls, 0))
    finish.set()
    thread.join()
    assert calls == [BLOCK]
    calls.clear()
    SpinThenBlock(60).receive(receiver(calls, 0))
    assert calls == [SPIN]


def test_never_spins_on_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin_wait, "_can_spin", False)
    calls: list[int] = []
    waiter = SpinThenBlock(60)
    waiter.receive(receiver(calls, 0))
    waiter.receive(receiver(calls, 0))
    assert calls == [BLOCK, BLOCK]


def test_error_ends_the_spinning() -> None:
    def fail(flags: int) -> str:
        raise ConnectionResetError

    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            SpinThenBlock(60).receive(fail)
