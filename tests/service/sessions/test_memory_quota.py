"""Memory quota: what sessions, identities and all clients use, and what each may use."""

import gc
import random
import threading

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_service.identity.accounts import Account
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.identity.policy import IdentityRules
from nnhal_service.sessions.limits import SHARE, Limits
from nnhal_service.sessions.memory_quota import MemoryQuota, Reservation
from nnhal_service.sessions.session import Session
from tests.concurrency import run_concurrently

ALL = 1000
YOU = Identity("token", "you")


def quota_of(**limits: int) -> MemoryQuota:
    return MemoryQuota(Limits({"service_memory_bytes": ALL, **limits}))


def error_of(quota: MemoryQuota, session: Session, size: int) -> HalError:
    with pytest.raises(HalError) as caught:
        quota.reserve(session, size, "the model")
    return caught.value


def largest(quota: MemoryQuota, session: Session) -> int:
    """Return the most bytes that the session can reserve at once."""
    for size in range(ALL, 0, -1):
        try:
            quota.reserve(session, size, "it")
        except HalError:
            continue
        return size
    return 0


def test_errors_name_the_limit_and_what_is_left() -> None:
    quota, session = quota_of(memory_bytes=500), Session("s1", ANONYMOUS)
    kept = quota.reserve_object(session, 400)
    with pytest.raises(HalError) as caught:
        quota.reserve_object(session, 200)
    assert (caught.value.limit, caught.value.kind) == ("memory_bytes", ErrorKind.LIMIT)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert "needs 200 bytes" in caught.value.reason and "may use 100 more" in caught.value.reason
    error = error_of(quota, session, 600)
    assert error.limit == "service_memory_bytes"
    assert "the model needs 600 bytes" in error.reason
    assert "uses 400 and may use 350 more" in error.reason
    kept.release()


def test_other_identities_have_memory_of_their_own() -> None:
    quota = quota_of(memory_bytes=300)
    first = quota.reserve_object(Session("s1", ANONYMOUS), 300)
    second = quota.reserve_object(Session("s2", YOU), 300)
    assert (quota.used(ANONYMOUS), quota.used(YOU), quota.total) == (300, 300, 600)
    del first, second
    assert (quota.used(ANONYMOUS), quota.used(YOU), quota.total) == (0, 0, 0)


def test_sessions_of_an_identity_share_its_memory() -> None:
    quota = quota_of()
    first, second = Session("s1", YOU), Session("s2", YOU)
    kept = quota.reserve(first, ALL // 2, "it")
    assert quota.used_by(second) == ALL // 2
    assert largest(quota, second) == largest(quota, first) < largest(quota, Session("s3", ANONYMOUS))
    kept.release()


def test_the_quota_of_an_identity_is_named_with_its_value_and_use() -> None:
    quota, account = quota_of(), Account(YOU, IdentityRules(memory_bytes=300), may_connect=True)
    kept = quota.reserve_object(Session("s1", YOU, account=account), 200)
    with pytest.raises(HalError) as caught:
        quota.reserve_object(Session("s2", YOU, account=account), 101)
    assert (caught.value.kind, caught.value.limit) == (ErrorKind.LIMIT, "identity_memory_bytes")
    assert "identity token:you uses 200 of its quota of 300 bytes" in caught.value.reason
    del kept
    quota.reserve_object(Session("s3", ANONYMOUS), 301)


def test_a_session_leaves_memory_to_others() -> None:
    quota = quota_of()
    kept, left = [], ALL
    for number in range(4):
        session = Session(f"s{number}", ANONYMOUS)
        size = largest(quota, session)
        assert size == left * SHARE // (SHARE + 1)
        kept.append(quota.reserve(session, size, "it"))
        assert largest(quota, session) == 0
        left -= size
    assert quota.total == ALL - left
    for reservation in kept:
        reservation.release()
    assert quota.total == 0
    assert largest(quota, Session("s9", ANONYMOUS)) == ALL * SHARE // (SHARE + 1)


def test_many_small_pieces_count_like_a_large_one() -> None:
    quota, session = quota_of(), Session("s1", ANONYMOUS)
    kept = [quota.reserve(session, 10, "it") for _ in range(ALL * SHARE // (SHARE + 1) // 10)]
    assert error_of(quota, session, 1).limit == "service_memory_bytes"
    kept.pop()
    kept.append(quota.reserve(session, 10, "it"))


def test_bytes_count_until_their_last_owner_is_freed() -> None:
    quota, session = quota_of(), Session("s1", ANONYMOUS)
    buffer = np.zeros(100, np.uint8)
    quota.charge(session, buffer)
    view = buffer[10:]
    del buffer
    assert quota.used_by(session) == 100
    del view
    assert quota.used_by(session) == 0


def test_release_counts_once() -> None:
    quota, session = quota_of(), Session("s1", ANONYMOUS)
    kept = quota.reserve(session, 100, "it")
    other = quota.reserve(session, 100, "it")
    for _ in range(2):
        kept.release()
    del kept
    assert quota.total == 100
    other.release()


def test_finalizer_on_a_thread_that_counts() -> None:
    """A finalizer that runs within the lock must not wait for it."""
    quota, session = quota_of(), Session("s1", ANONYMOUS)
    kept = quota.reserve(session, 100, "it")
    with quota._lock:
        kept.release()
    assert quota.total == 0


def test_threads() -> None:
    quota = quota_of()
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        session = Session(f"s{number}", ANONYMOUS)
        barrier.wait()
        for _ in range(2000):
            try:
                quota.reserve(session, 100, "it").release()
            except HalError as error:
                assert error.limit == "service_memory_bytes"

    run_concurrently(4, work)
    assert quota.total == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_sequences(seed: int) -> None:
    """Random reservations of several sessions, against a model of the quota."""
    generator = random.Random(seed)
    quota = quota_of(memory_bytes=600)
    sessions = [Session(f"s{number}", (ANONYMOUS, YOU)[number % 2]) for number in range(5)]
    held: list[tuple[Session, int, bool, Reservation]] = []

    def used(session: Session) -> int:
        if session.identity == ANONYMOUS:
            return sum(size for owner, size, _, _ in held if owner is session)
        return sum(size for owner, size, _, _ in held if owner.identity == session.identity)

    for _ in range(400):
        session = generator.choice(sessions)
        action = generator.random()
        if action < 0.1:  # the session ends
            held = [entry for entry in held if entry[0] is not session]
        elif action < 0.4 and held:
            held.pop(generator.randrange(len(held)))
        else:
            size, is_object = generator.randrange(0, 400), generator.random() < 0.5
            left = ALL - sum(entry[1] for entry in held) - size
            objects = sum(entry[1] for entry in held if entry[2] and entry[0].identity == session.identity)
            allowed = used(session) + size <= SHARE * left and (not is_object or objects + size <= 600)
            try:
                if is_object:
                    reservation = quota.reserve_object(session, size)
                else:
                    reservation = quota.reserve(session, size, "it")
            except HalError:
                assert not allowed
            else:
                assert allowed
                held.append((session, size, is_object, reservation))
                del reservation
        assert quota.total == sum(entry[1] for entry in held)
        assert all(quota.used_by(owner) == used(owner) for owner in sessions)
    held.clear()
    gc.collect()
    assert quota.total == 0
    assert [quota.used(identity) for identity in (ANONYMOUS, YOU)] == [0, 0]
