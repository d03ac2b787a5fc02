"""Stalled calls are cancelled, at once if they are too many; slow ones are not."""

from collections.abc import Iterator
from typing import Any

import pytest

from nnhal.errors import HalError
from nnhal_service.grpc_support import stall_watchdog
from nnhal_service.grpc_support.stall_watchdog import LATE_CHECKS, PROGRESS_BYTES, StallWatchdog
from tests.service.fake_timers import FakeTimers

TIMEOUT_S = 10
CHECK_S = 0.1
CAPACITY = 2


class Context:
    """Takes the place of the grpc.ServicerContext of a transfer."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def peer(self) -> str:
        return "test"


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> FakeTimers:
    timers = FakeTimers()
    monkeypatch.setattr(stall_watchdog, "now_ns", timers.now)
    return timers


@pytest.fixture
def watchdog(timers: Any) -> StallWatchdog:
    return StallWatchdog(TIMEOUT_S, timers, CAPACITY, CHECK_S)


def chunks(context: Context, timers: FakeTimers, pause_s: float, count: int) -> Iterator[int]:
    """Yield numbers with a pause before each. Fail when the context has been cancelled."""
    for i in range(count):
        timers.advance(pause_s)
        if context.cancelled:
            raise ConnectionError
        yield i


def full(chunk: int) -> int:
    """Return the size of a chunk that is large enough by itself."""
    return PROGRESS_BYTES


def test_chunk_that_does_not_arrive(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    with pytest.raises(ConnectionError):
        list(watchdog.receive(chunks(context, timers, TIMEOUT_S, 1), context, full))


def test_chunk_that_is_not_read(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    sending = watchdog.send([1, 2], context)
    assert next(sending) == 1
    assert not context.cancelled
    timers.advance(TIMEOUT_S)
    assert context.cancelled


def test_upload_in_small_chunks_that_arrive_in_time(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    with pytest.raises(ConnectionError):
        list(watchdog.receive(chunks(context, timers, 0.3 * TIMEOUT_S, 5), context, lambda chunk: 1))


def test_upload_in_small_chunks_that_are_enough_together(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    small = chunks(context, timers, 0.3 * TIMEOUT_S, 20)
    assert len(list(watchdog.receive(small, context, lambda chunk: PROGRESS_BYTES // 2))) == 20


def test_message_that_is_not_read(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    sent: list[int | None] = []

    def send(message: int | None) -> None:
        sent.append(message)
        timers.advance(TIMEOUT_S)

    guarded = watchdog.wrap_send(send, context)
    guarded(None)
    assert not context.cancelled
    guarded(1)
    assert context.cancelled and sent == [None, 1]


def test_slow_transfer_is_not_cancelled(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    for _ in watchdog.receive(chunks(context, timers, 0.9 * TIMEOUT_S, 5), context, full):
        pass
    for _ in watchdog.send(range(5), context):
        timers.advance(0.9 * TIMEOUT_S)
    assert not context.cancelled


def test_finished_transfer_is_not_cancelled(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    context: Any = Context()
    assert list(watchdog.receive(iter([1, 2]), context, lambda chunk: chunk)) == [1, 2]
    timers.advance(2 * TIMEOUT_S)
    assert not context.cancelled


def wait_for_all(watchdog: StallWatchdog, contexts: list[Any], then: Any) -> None:
    """Begin a wait for the request of each context, and call a function while all of them wait."""

    def requests() -> Iterator[int]:
        if len(contexts) > 1:
            wait_for_all(watchdog, contexts[1:], then)
        else:
            then()
        yield 0

    watchdog.first(requests(), contexts[0])


def test_first_request(watchdog: StallWatchdog) -> None:
    context: Any = Context()
    assert watchdog.first(iter([1, 2]), context) == 1
    with pytest.raises(HalError, match="the call has no request"):
        watchdog.first(iter([]), context)


def test_surplus_calls_that_wait_longest_are_cancelled(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    contexts: list[Any] = [Context() for _ in range(CAPACITY + 3)]

    def check_twice() -> None:
        timers.advance(CHECK_S)
        assert not any(context.cancelled for context in contexts)
        timers.advance(CHECK_S)
        assert [context.cancelled for context in contexts] == [True] * 3 + [False] * CAPACITY

    wait_for_all(watchdog, contexts, check_twice)


def test_surplus_calls_have_more_time_while_messages_come(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    contexts: list[Any] = [Context() for _ in range(CAPACITY + 1)]

    def check_late() -> None:
        for _ in range(LATE_CHECKS):
            assert not any(context.cancelled for context in contexts)
            other: Any = Context()
            assert watchdog.first(iter([1]), other) == 1
            timers.advance(CHECK_S)
        assert [context.cancelled for context in contexts] == [True] + [False] * CAPACITY

    wait_for_all(watchdog, contexts, check_late)


def test_calls_within_the_capacity_have_the_whole_timeout(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    contexts: list[Any] = [Context() for _ in range(CAPACITY)]

    def check_until_timeout() -> None:
        for _ in range(5):
            timers.advance(CHECK_S)
        assert not any(context.cancelled for context in contexts)
        timers.advance(TIMEOUT_S)
        assert all(context.cancelled for context in contexts)

    wait_for_all(watchdog, contexts, check_until_timeout)


def test_a_pause_of_the_process_cancels_no_call(watchdog: StallWatchdog, timers: FakeTimers) -> None:
    contexts: list[Any] = [Context() for _ in range(CAPACITY + 1)]

    def pause() -> None:
        timers.advance(0.9 * TIMEOUT_S)
        assert not any(context.cancelled for context in contexts)

    wait_for_all(watchdog, contexts, pause)
