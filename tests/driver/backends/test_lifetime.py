"""Lifetime of backends: uses are counted, also while the garbage collector runs."""

import threading
import weakref
from typing import Any

import pytest

from nnhal_driver.backends import lifetime
from tests.driver.hostile_backend import Hostile


class Closing(Hostile):
    """Backend that counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_backend_is_closed_after_its_last_use() -> None:
    backend = Closing()
    lifetime.acquire([backend])
    lifetime.acquire([backend])
    lifetime.release([backend])
    assert backend.closed == 0
    lifetime.release([backend])
    assert backend.closed == 1


def test_garbage_collector_may_release_a_backend_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on a thread that needs memory, which may be in the middle of `acquire`."""
    garbage, backend = Closing(), Closing()
    lifetime.acquire([garbage])
    finalize: Any = weakref.finalize

    def collect(*arguments: Any) -> Any:
        lifetime.release([garbage])
        return finalize(*arguments)

    monkeypatch.setattr(weakref, "finalize", collect)
    thread = threading.Thread(target=lifetime.acquire, args=([backend],), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "deadlock"
    assert (garbage.closed, backend.closed) == (1, 0)
    lifetime.release([backend])
    assert backend.closed == 1
