"""Places of clients that move to another worker: no other client gets them, and they count once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.quota_use import Quota, QuotaUse
from nnhal_service.identity import held_places
from nnhal_service.identity.accounts import Accounts
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.held_places import CAPACITY, HELD, session_digest
from nnhal_service.identity.identity import Identity
from nnhal_service.identity.policy import Policy
from nnhal_service.identity.use_ledger import UseLedger
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry
from nnhal_service.supervisor.scoreboard import NOBODY, Scoreboard, WorkerState

ALICE = Identity("token", "alice")
POLICY = Policy.model_validate({"default": {"sessions": 2, "prepared_models": 2, "memory_bytes": 100}})
GRACE_S = 10.0


class Worker:
    """Sessions of one worker, which shares quotas with the others."""

    def __init__(self, board: Scoreboard, row: int) -> None:
        self.board, self.row = board, row
        board.clear(row)
        self.enter(WorkerState.SERVING)
        self.ledger = UseLedger(board, row)
        accounts = Accounts(POLICY, find_use=self.ledger.use_of)
        self.registry = SessionRegistry(GRACE_S, authentication=Authentication(accounts))
        self.quota = MemoryQuota(Limits())

    def enter(self, state: WorkerState) -> None:
        self.board.write(self.row, replace(NOBODY, pid=1, state=state))

    def open(self, predecessor: Session | None = None) -> Session:
        replaces = session_digest(predecessor.token) if predecessor else b""
        return self.registry.open(ALICE, replaces=replaces)

    def drain(self) -> None:
        self.registry.hold_places()
        self.enter(WorkerState.DRAINING)

    def resume(self) -> None:
        self.registry.resume()
        self.enter(WorkerState.SERVING)

    def end(self) -> None:
        self.registry.close()
        self.board.clear(self.row)

    def allocate(self, session: Session, size: int) -> None:
        reservation = self.quota.reserve_object(session, size)
        memory = MemoryObject(np.zeros(size, np.uint8))
        reservation.keep_for(memory.buffer)
        session.add(memory)


def prepare(session: Session, models: int = 1) -> None:
    for _ in range(models):
        session.add(object(), "prepared_models")


def is_refused(call: Callable[[], object], quota: str) -> bool:
    try:
        call()
    except HalError as error:
        return error.limit == f"identity_{quota}"
    return False


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> list[Worker]:
    board = Scoreboard()
    created = [Worker(board, row) for row in range(3)]
    for worker in created:
        request.addfinalizer(worker.registry.close)
    return created


def test_place_of_a_session_is_for_its_successor(workers: list[Worker]) -> None:
    old, new, third = workers
    first, second = old.open(), old.open()
    old.drain()
    for worker in (new, third):
        assert is_refused(worker.open, "sessions")
    new.open(first)
    assert is_refused(third.open, "sessions")
    old.end()  # what it held goes on
    assert is_refused(third.open, "sessions")
    third.open(second)
    assert is_refused(lambda: third.open(first), "sessions") and is_refused(lambda: third.open(second), "sessions")


def test_models_and_memory_are_held(workers: list[Worker]) -> None:
    old, new, third = workers
    owner, neighbor = old.open(), third.open()
    prepare(owner, 2)
    old.allocate(owner, 60)
    old.drain()
    moved = new.open(owner)
    old.end()
    assert is_refused(lambda: prepare(neighbor), "prepared_models")
    assert is_refused(lambda: third.allocate(neighbor, 41), "memory_bytes")
    third.allocate(neighbor, 40)
    prepare(moved, 2)
    new.allocate(moved, 60)
    assert is_refused(lambda: prepare(moved), "prepared_models")
    assert is_refused(lambda: new.allocate(moved, 1), "memory_bytes")


def test_what_was_not_taken_yet_goes_on_to_the_next_worker(workers: list[Worker]) -> None:
    old, new, third = workers
    owner = old.open()
    prepare(owner, 2)
    old.drain()
    moved = new.open(owner)
    prepare(moved)
    new.drain()
    neighbor = third.open()
    assert is_refused(lambda: prepare(neighbor), "prepared_models")
    again = third.open(moved)
    prepare(again, 2)
    assert is_refused(lambda: prepare(again), "prepared_models")


def test_released_objects_of_a_place_are_free(workers: list[Worker]) -> None:
    old, new, third = workers
    owner, neighbor = old.open(), third.open()
    prepare(owner, 2)
    old.drain()
    moved = new.open(owner)
    handle = moved.add(object(), "prepared_models")
    moved.release([handle])
    prepare(neighbor)
    assert is_refused(lambda: prepare(neighbor), "prepared_models")


def test_worker_that_goes_on_holds_nothing(workers: list[Worker]) -> None:
    old, new, _ = workers
    old.open()
    old.drain()
    old.resume()
    new.open()
    assert is_refused(new.open, "sessions")


def test_places_expire(workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, _ = workers
    owner = old.open()
    old.drain()
    old.end()
    monkeypatch.setattr(held_places, "now_ns", lambda: now_ns() + int(GRACE_S * 1e9))
    first, second = new.open(owner), new.open()
    assert first.place is None and second.place is None
    new.drain()  # the table is used again
    assert new.ledger.use_of(str(ALICE)).elsewhere(Quota.SESSIONS) == 0


def test_foreign_and_unknown_places_do_not_exist(workers: list[Worker]) -> None:
    old, new, _ = workers
    owner = old.open()
    old.drain()
    bob = Identity("token", "bob")
    assert new.registry.open(bob, replaces=session_digest(owner.token)).place is None
    assert new.registry.open(bob, replaces=b"x" * 1000).place is None


def test_full_table(workers: list[Worker]) -> None:
    use: QuotaUse = workers[0].ledger.use_of("token:bob")
    for number in range(CAPACITY + 1):
        use.hold(number.to_bytes(16, "little"), (1,) * len(HELD), None, now_ns() + 10**12)
    assert use.elsewhere(Quota.SESSIONS) == CAPACITY
    assert use.take(bytes(16)) is None  # there is no space to write that it is taken
