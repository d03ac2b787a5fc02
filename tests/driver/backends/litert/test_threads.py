"""Choice of the number of threads from durations of calls."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from nnhal_driver.backends.litert.threads import ThreadChoice

FASTER = {1: 0.1, 4: 0.03}
SLOWER = {1: 0.1, 4: 0.2}
ABOUT_EQUAL = {1: 0.1, 4: 0.095}
SHORT = {1: 0.0001, 4: 0.0}


def call(choice: ThreadChoice, seconds: Mapping[int, float], count: int) -> list[int]:
    """Record calls, and return the numbers of threads that they ran with."""
    used = []
    for _ in range(count):
        used.append(choice.threads)
        choice.record(choice.threads, seconds[choice.threads])
    return used


@pytest.mark.parametrize(("seconds", "threads"), [(FASTER, 4), (SLOWER, 1), (ABOUT_EQUAL, 1), (SHORT, 1)])
def test_threads_are_used_only_if_faster(seconds: Mapping[int, float], threads: int) -> None:
    choice = ThreadChoice(4)
    assert call(choice, seconds, 20)[-1] == threads


def test_short_calls_are_no_longer_measured() -> None:
    choice = ThreadChoice(4)
    call(choice, SHORT, 5)
    assert not choice.is_measuring


def test_one_cpu_is_never_measured() -> None:
    choice = ThreadChoice(1)
    assert not choice.is_measuring and call(choice, {1: 9.0}, 20) == [1] * 20


def test_few_slow_calls_change_nothing() -> None:
    choice = ThreadChoice(4)
    call(choice, FASTER, 20)
    assert call(choice, {4: 9.0}, 2)[-1] == choice.threads == 4
    assert call(choice, FASTER, 20)[-1] == 4


def test_threads_that_become_slow_are_given_up_and_tried_again() -> None:
    choice = ThreadChoice(4)
    call(choice, FASTER, 20)
    assert 1 in call(choice, SLOWER, 12)
    assert call(choice, SLOWER, 90) == [1] * 90
    assert call(choice, FASTER, 200)[-1] == 4


def test_threads_that_become_no_faster_than_one_are_given_up() -> None:
    """The scheduler may keep them on one CPU."""
    choice = ThreadChoice(4)
    call(choice, FASTER, 20)
    assert call(choice, {1: 0.1, 4: 0.101}, 12)[-1] == 1


def test_each_failed_try_is_followed_by_a_longer_pause() -> None:
    choice = ThreadChoice(4)
    used = call(choice, SLOWER, 30_000)
    tries = [i for i, (before, now) in enumerate(pairwise(used)) if (before, now) == (1, 4)]
    assert len(tries) == 5 and used.count(4) == 5 * 5
    gaps = [after - before for before, after in pairwise(tries)]
    assert gaps == sorted(gaps) and gaps[-1] > 3 * gaps[-2]


def test_calls_with_an_earlier_number_of_threads_are_ignored() -> None:
    """Such a call began before the choice changed."""
    choice = ThreadChoice(4)
    call(choice, FASTER, 5)
    assert choice.threads == 4
    for _ in range(5):
        choice.record(1, 0.0)
    assert call(choice, FASTER, 20) == [4] * 20
