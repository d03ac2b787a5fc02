"""Sessions: handles, isolation, grace time and end."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nnhal.errors import HalError, SessionLostError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.sessions import session_registry
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry
from tests.concurrency import new_threads, wait_until
from tests.service.fake_timers import FakeTimers

GRACE_S = 10


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> FakeTimers:
    timers = FakeTimers()
    monkeypatch.setattr(session_registry, "Timers", lambda name: timers)
    monkeypatch.setattr(session_registry, "now_ns", timers.now)
    return timers


@pytest.fixture
def sessions(timers: FakeTimers) -> Iterator[SessionRegistry]:
    registry = SessionRegistry(grace_s=GRACE_S)
    yield registry
    registry.close()


def test_handles_find_objects_of_their_kind(sessions: SessionRegistry) -> None:
    session = sessions.open(ANONYMOUS)
    handle = session.add("object")
    assert session.get(handle, str) == "object"
    with pytest.raises(HalError) as caught:
        session.get(handle, int)
    assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE


def test_handles_of_other_sessions_look_unknown(sessions: SessionRegistry) -> None:
    mine, theirs = sessions.open(ANONYMOUS), sessions.open(ANONYMOUS)
    handle = theirs.add("object")
    errors = []
    for wrong in (handle, b"\0" * 16, b"", b"short"):
        with pytest.raises(HalError) as caught:
            mine.get(wrong, str)
        errors.append((caught.value.status, caught.value.reason, caught.value.kind))
    assert len(set(errors)) == 1


def test_release_ignores_unknown_handles(sessions: SessionRegistry) -> None:
    session = sessions.open(ANONYMOUS)
    handle = session.add("object")
    session.release([b"unknown", handle, handle])
    with pytest.raises(HalError):
        session.get(handle, str)


def test_session_lives_while_a_stream_is_open(sessions: SessionRegistry, timers: FakeTimers) -> None:
    session = sessions.open(ANONYMOUS)
    timers.advance(3 * GRACE_S)
    assert sessions.get(session.token, None) is session


def test_session_ends_after_its_grace_time(sessions: SessionRegistry, timers: FakeTimers) -> None:
    session = sessions.open(ANONYMOUS)
    session.add("object")
    reasons: list[str] = []
    session.on_close(reasons.append)
    sessions.detach(session)
    timers.advance(0.9 * GRACE_S)
    assert sessions.get(session.token, None) is session
    timers.advance(0.1 * GRACE_S)
    assert sessions.count() == 0
    with pytest.raises(SessionLostError):
        sessions.get(session.token, None)
    with pytest.raises(SessionLostError):
        session.add("late")
    assert reasons == ["its connection is gone"]


def test_grace_time_passes_without_calls() -> None:
    sessions = SessionRegistry(grace_s=0.01)
    sessions.detach(sessions.open(ANONYMOUS))
    assert wait_until(lambda: sessions.count() == 0)
    sessions.close()


def test_reattached_session_stays(sessions: SessionRegistry, timers: FakeTimers) -> None:
    session = sessions.open(ANONYMOUS)
    sessions.detach(session)
    assert sessions.attach(session.token) is session
    timers.advance(3 * GRACE_S)
    assert sessions.get(session.token, None) is session


def test_each_disconnection_has_its_own_grace_time(sessions: SessionRegistry, timers: FakeTimers) -> None:
    session = sessions.open(ANONYMOUS)
    sessions.detach(session)
    timers.advance(0.7 * GRACE_S)
    sessions.attach(session.token)
    sessions.detach(session)
    timers.advance(0.7 * GRACE_S)  # the first grace time would be over, the second is not
    assert sessions.get(session.token, None) is session
    timers.advance(0.3 * GRACE_S)
    assert sessions.count() == 0


def test_close_ends_all_sessions_and_the_thread() -> None:
    before = threading.enumerate()
    sessions = SessionRegistry(grace_s=60)
    ended: list[str] = []
    for _ in range(3):
        sessions.open(ANONYMOUS).on_close(ended.append)
    sessions.close()
    assert ended == ["the service is stopping"] * 3
    assert not new_threads(before)
    with pytest.raises(HalError):
        sessions.open(ANONYMOUS)


def test_session_ends_once() -> None:
    session = Session("s1", ANONYMOUS)
    ended: list[str] = []
    session.on_close(ended.append)
    session.close("first")
    session.close("second")
    session.on_close(ended.append)
    assert ended == ["first", "first"]


def test_logs_name_objects_by_label(sessions: SessionRegistry) -> None:
    session = sessions.open(ANONYMOUS)
    handle = session.add("object")
    assert session.label(handle) == f"{session.name}.1"
    assert handle.hex()[:8] not in session.label(handle)


def test_listeners_of_ended_streams_are_removed(sessions: SessionRegistry) -> None:
    """A client that attaches again and again must not fill the memory."""
    session = sessions.open(ANONYMOUS)
    reasons: list[str] = []
    for _ in range(3):
        sessions.attach(session.token)
        session.on_close(reasons.append)
        session.off_close(reasons.append)
        sessions.detach(session)
    session.on_close(reasons.append)
    assert len(session._closing._listeners) == 1
    sessions.end(session, "over")
    assert reasons == ["over"]


def test_streams_of_a_session_are_limited(sessions: SessionRegistry) -> None:
    session = sessions.open(ANONYMOUS)
    for _ in range(15):
        sessions.attach(session.token)
    with pytest.raises(HalError) as caught:
        sessions.attach(session.token)
    assert caught.value.limit == "session_streams"
    sessions.detach(session)
    assert sessions.attach(session.token) is session


def open_until_refused(sessions: SessionRegistry, identity: Identity, peers: Iterator[str]) -> tuple[int, HalError]:
    """Open sessions of one client until the service refuses. Return their number and the error."""
    for opened, peer in enumerate(peers):
        try:
            sessions.open(identity, peer=peer)
        except HalError as error:
            return opened, error
    raise AssertionError("the peers have ended")


def ports(host: str) -> Iterator[str]:
    return (f"ipv4:{host}:{port}" for port in itertools.count(1))


@pytest.mark.parametrize("identity", [ANONYMOUS, Identity("token", "alice")], ids=str)
def test_a_client_leaves_sessions_to_others(timers: FakeTimers, identity: Identity) -> None:
    sessions = SessionRegistry(GRACE_S, Limits({"sessions": 100}))
    opened, error = open_until_refused(sessions, identity, ports("10.0.0.1"))
    assert opened == 75
    assert (error.limit, error.status) == ("sessions", ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT)
    assert "has 75 of 100 sessions; the remaining 25 are for others" in error.reason
    for number in range(3):  # each further client finds some
        other = replace(identity, name=identity.name and f"other {number}")
        assert open_until_refused(sessions, other, ports(f"10.0.1.{number}"))[0] > 0
    sessions.end(sessions.all()[0], "closed by the client")
    sessions.open(Identity("token", "bob"))
    sessions.close()


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_sessions_have_no_reserve(timers: FakeTimers, limit: int) -> None:
    sessions = SessionRegistry(GRACE_S, Limits({"sessions": limit}))
    assert open_until_refused(sessions, ANONYMOUS, ports("::1"))[0] == limit
    sessions.close()
