"""Fences: states and listeners."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from nnhal.types import FenceState
from nnhal_driver.execution.fence import Fence


def test_fence_ends_once_and_calls_each_listener_once() -> None:
    fence = Fence()
    calls: list[object] = []
    listeners: list[Callable[[Fence], None]] = [lambda f, i=i: calls.append((i, f.state)) for i in range(3)]  # type: ignore[misc]
    for listener in listeners:
        fence.add_listener(listener)
    fence.remove_listener(listeners[1])
    assert (fence.state, calls) == (FenceState.ACTIVE, [])
    assert fence.signal()
    assert not fence.signal(error=True)
    assert (fence.state, calls) == (FenceState.SIGNALED, [(0, FenceState.SIGNALED), (2, FenceState.SIGNALED)])
    fence.add_listener(listeners[1])
    assert calls[-1] == (1, FenceState.SIGNALED)


def test_listener_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    fence = Fence()
    calls: list[object] = []

    def fail(_: Fence) -> None:
        raise RuntimeError("broken listener")

    fence.add_listener(fail)
    fence.add_listener(calls.append)
    assert fence.signal(error=True)
    assert calls == [fence]
    assert "broken listener" in caplog.text


def test_long_chain_of_fences_does_not_exhaust_the_stack() -> None:
    chain = [Fence() for _ in range(20_000)]
    for fence, following in pairwise(chain):
        fence.add_listener(lambda f, n=following: n.signal(error=f.state == FenceState.ERROR))  # type: ignore[misc]
    chain[0].signal(error=True)
    assert chain[-1].state == FenceState.ERROR
