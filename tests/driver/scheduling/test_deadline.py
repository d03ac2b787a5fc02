"""Deadlines: instants and times relative to now."""

import threading

import pytest

from nnhal.types import OMITTED
from nnhal_driver.scheduling.deadline import Deadline, to_absolute
from tests.driver.clock import FakeClock


def test_longest_deadline_does_not_overflow() -> None:
    deadline = Deadline(2**63 - 1)
    assert not deadline.has_passed()
    remaining = deadline.remaining_s()
    assert remaining is not None
    assert not threading.Event().wait(min(remaining, 0.001))


@pytest.mark.parametrize("relative_ns", [OMITTED, -2, 0, 5, 2**63 - 1])
def test_relative_times_become_instants(clock: FakeClock, relative_ns: int) -> None:
    expected = relative_ns if relative_ns < 0 else min(clock.now_ns + relative_ns, 2**63 - 1)
    assert to_absolute(relative_ns) == expected
