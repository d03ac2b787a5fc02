"""Answers that processes share."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from nnhal_driver.backends.gpu.shared_answer import VALID_S, SharedAnswer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_answer_is_asked_for_again_for_another_key_after_a_while_or_when_it_is_forgotten() -> None:
    clock, asked = Clock(), iter(range(9))
    answer = SharedAnswer(clock)

    def get(key: str) -> int:
        number: int = answer.get(key, lambda: next(asked))
        return number

    assert [get("a"), get("a"), get("b"), get("b")] == [0, 0, 1, 1]
    clock.now += VALID_S - 1
    assert get("b") == 1
    clock.now += 1
    assert get("b") == 2
    answer.forget()
    assert get("b") == 3


def test_error_is_no_answer() -> None:
    answer = SharedAnswer()
    with pytest.raises(ZeroDivisionError):
        answer.get("a", lambda: 1 // 0)
    assert answer.get("a", lambda: {"problem": "none"}) == {"problem": "none"}


def test_processes_wait_for_the_one_that_asks() -> None:
    answer = SharedAnswer()
    (begun, begin), (ended, end) = os.pipe(), os.pipe()
    if not os.fork():
        answer.get("a", lambda: [os.write(begin, b"x"), os.read(ended, 1)][0])
        os._exit(0)
    os.read(begun, 1)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(answer.get, "a", lambda: "asked twice")
        os.write(end, b"x")
        assert waiting.result() == 1
    os.wait()
    for descriptor in (begun, begin, ended, end):
        os.close(descriptor)


def test_process_that_dies_while_it_asks_is_replaced() -> None:
    answer = SharedAnswer()
    if not (pid := os.fork()):
        answer.get("a", lambda: os._exit(0))
    os.waitpid(pid, 0)
    assert answer.get("a", lambda: 5) == 5
