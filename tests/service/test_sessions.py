"""Sessions: handles, isolation, grace, ends."""

import threading
import time
from collections.abc import Iterator

import pytest

from nnhal.errors import HalError, SessionLostError
from nnhal.types import ErrorKind
from service.sessions import Session, Sessions


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    made = Sessions(grace_s=0.1)
    yield made
    made.close()


def until(condition: object, seconds: float = 5.0) -> bool:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_handles_find_objects_of_their_kind(sessions: Sessions) -> None:
    session = sessions.open("me")
    handle = session.add("thing")
    assert session.get(handle, str) == "thing"
    with pytest.raises(HalError) as caught:
        session.get(handle, int)
    assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE


def test_handles_of_others_look_like_none_at_all(sessions: Sessions) -> None:
    mine, theirs = sessions.open("me"), sessions.open("me")
    handle = theirs.add("thing")
    errors = []
    for wrong in (handle, b"\0" * 16, b"", b"short"):
        with pytest.raises(HalError) as caught:
            mine.get(wrong, str)
        errors.append((caught.value.status, caught.value.reason, caught.value.kind))
    assert len(set(errors)) == 1


def test_release_passes_over_unknown_handles(sessions: Sessions) -> None:
    session = sessions.open("me")
    handle = session.add("thing")
    session.release([b"unknown", handle, handle])
    with pytest.raises(HalError):
        session.get(handle, str)


def test_a_session_lives_while_a_stream_does(sessions: Sessions) -> None:
    session = sessions.open("me")
    time.sleep(0.3)
    assert sessions.get(session.token) is session


def test_a_session_ends_after_its_grace(sessions: Sessions) -> None:
    session = sessions.open("me")
    session.add("thing")
    reasons: list[str] = []
    session.when_ended(reasons.append)
    sessions.detach(session)
    assert sessions.get(session.token) is session
    assert until(lambda: sessions.count() == 0)
    with pytest.raises(SessionLostError):
        sessions.get(session.token)
    with pytest.raises(SessionLostError):
        session.add("late")
    assert reasons == ["its connection is gone"]


def test_a_session_taken_up_again_stays(sessions: Sessions) -> None:
    session = sessions.open("me")
    sessions.detach(session)
    assert sessions.attach(session.token) is session
    time.sleep(0.3)
    assert sessions.get(session.token) is session


def test_each_break_has_a_grace_of_its_own() -> None:
    sessions = Sessions(grace_s=0.4)
    session = sessions.open("me")
    sessions.detach(session)
    time.sleep(0.3)
    sessions.attach(session.token)
    sessions.detach(session)
    time.sleep(0.2)  # the first grace would be over, the second is not
    assert sessions.get(session.token) is session
    assert until(lambda: sessions.count() == 0)
    sessions.close()


def test_closing_ends_all_and_the_thread() -> None:
    before = threading.active_count()
    sessions = Sessions(grace_s=60)
    ended: list[str] = []
    for _ in range(3):
        sessions.open("me").when_ended(ended.append)
    sessions.close()
    assert ended == ["the service stops"] * 3
    assert threading.active_count() == before
    with pytest.raises(HalError):
        sessions.open("me")


def test_ends_once() -> None:
    session = Session("s1", "me")
    ended: list[str] = []
    session.when_ended(ended.append)
    session.close("first")
    session.close("second")
    session.when_ended(ended.append)
    assert ended == ["first", "first"]


def test_logs_call_objects_by_a_label_not_by_their_handle(sessions: Sessions) -> None:
    session = sessions.open("me")
    handle = session.add("thing")
    assert session.label(handle) == f"{session.name}.1"
    assert handle.hex()[:8] not in session.label(handle)


def test_a_stream_that_goes_is_forgotten(sessions: Sessions) -> None:
    """Whoever takes a session up again and again must not fill the memory."""
    session = sessions.open("me")
    told: list[str] = []
    for _ in range(3):
        sessions.attach(session.token)
        session.when_ended(told.append)
        session.forget(told.append)
        sessions.detach(session)
    session.when_ended(told.append)
    assert len(session._listeners) == 1
    sessions.end(session, "over")
    assert told == ["over"]


def test_streams_of_a_session_are_limited(sessions: Sessions) -> None:
    session = sessions.open("me")
    for _ in range(15):
        sessions.attach(session.token)
    with pytest.raises(HalError) as caught:
        sessions.attach(session.token)
    assert caught.value.limit == "session_streams"
    sessions.detach(session)
    assert sessions.attach(session.token) is session
