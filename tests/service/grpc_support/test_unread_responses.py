"""Large responses count until they are read, and are cancelled when their session reads none of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_service.grpc_support import unread_responses
from nnhal_service.grpc_support.unread_responses import COPIES, COUNTED_BYTES, UnreadResponses
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry
from tests.service.fake_timers import FakeTimers

TIMEOUT_S = 10
SIZE = COUNTED_BYTES


class Call:
    """Takes the place of the grpc.ServicerContext of a call."""

    def __init__(self) -> None:
        self.cancelled = False
        self.callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        return True

    def cancel(self) -> None:
        self.cancelled = True
        self.finish()

    def finish(self) -> None:
        for callback in self.callbacks:
            callback()


class Subject:
    """A session, and what counts its responses."""

    def __init__(self, sessions: SessionRegistry, timers: FakeTimers) -> None:
        self.quota = MemoryQuota(Limits({"service_memory_bytes": 100 * SIZE}))
        self.unread = UnreadResponses(sessions, self.quota, TIMEOUT_S, timers)  # type: ignore[arg-type]
        self.session: Session = sessions.open(ANONYMOUS)

    def respond(self, size: int = SIZE) -> Call:
        """Count a response."""
        call: Any = Call()
        self.unread.count(self.session.token, call, size)
        return call  # type: ignore[no-any-return]

    @property
    def counted(self) -> int:
        """Bytes that count."""
        return self.quota.used_by(self.session)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> FakeTimers:
    timers = FakeTimers()
    monkeypatch.setattr(unread_responses, "now_ns", timers.now)
    return timers


@pytest.fixture
def subject(timers: FakeTimers) -> Iterator[Subject]:
    sessions = SessionRegistry(1)
    yield Subject(sessions, timers)
    sessions.close()


def test_response_counts_until_it_is_read(subject: Subject) -> None:
    call = subject.respond()
    assert subject.counted == COPIES * SIZE
    call.finish()
    assert subject.counted == 0


def test_small_response_does_not_count(subject: Subject) -> None:
    subject.respond(SIZE - 1)
    assert subject.counted == 0


def test_too_many_responses(subject: Subject) -> None:
    calls = [subject.respond(10 * SIZE) for _ in range(3)]
    with pytest.raises(HalError, match="the response needs") as caught:
        subject.respond(10 * SIZE)
    assert (caught.value.status, caught.value.limit) == (
        ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
        "service_memory_bytes",
    )
    calls[0].finish()
    subject.respond(10 * SIZE)


def test_stalled_responses_are_cancelled(subject: Subject, timers: FakeTimers) -> None:
    calls = [subject.respond() for _ in range(3)]
    timers.advance(0.9 * TIMEOUT_S)
    assert not any(call.cancelled for call in calls)
    timers.advance(0.1 * TIMEOUT_S)
    assert all(call.cancelled for call in calls)
    assert subject.counted == 0


def test_responses_are_not_cancelled_while_the_session_reads_some(subject: Subject, timers: FakeTimers) -> None:
    slow = subject.respond()
    for _ in range(5):
        read = subject.respond()
        timers.advance(0.9 * TIMEOUT_S)
        read.finish()
    assert not slow.cancelled
    timers.advance(TIMEOUT_S)
    assert slow.cancelled


def test_pause_between_responses(subject: Subject, timers: FakeTimers) -> None:
    subject.respond().finish()
    timers.advance(0.9 * TIMEOUT_S)
    call = subject.respond()
    timers.advance(0.9 * TIMEOUT_S)
    assert not call.cancelled
    call.finish()
    timers.advance(5 * TIMEOUT_S)
    later = subject.respond()
    timers.advance(0.9 * TIMEOUT_S)
    assert not later.cancelled


def test_response_of_a_stream_counts_while_it_is_sent(subject: Subject, timers: FakeTimers) -> None:
    call: Any = Call()
    with subject.unread.sending(subject.session, call, SIZE):
        assert subject.counted == COPIES * SIZE
        timers.advance(0.9 * TIMEOUT_S)
    assert (subject.counted, call.cancelled) == (0, False)
    with subject.unread.sending(subject.session, call, SIZE - 1):
        assert subject.counted == 0
    with subject.unread.sending(subject.session, call, SIZE):
        timers.advance(TIMEOUT_S)
        assert call.cancelled
    with pytest.raises(HalError) as caught:
        subject.unread.sending(subject.session, call, 100 * SIZE)
    assert caught.value.limit == "service_memory_bytes" and subject.counted == 0
