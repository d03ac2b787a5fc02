"""Fixtures for tests of the driver."""

import time

import pytest

from tests.driver.clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Replace the clock of deadlines by one that the test sets."""
    fake = FakeClock()
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: fake.now_ns)
    return fake
