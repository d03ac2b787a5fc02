"""Stores that fail, hang, vanish or lie: a preparation loses some time, and nothing else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnhal.types import CacheState
from nnhal_service.peers.cache_share.directory_store import DirectoryStore
from tests.concurrency import wait_until
from tests.service.peers.cache_share.member import Member, running_member


class FaultyStore(DirectoryStore):
    """A store in a directory with a fault that can be turned on and off.

    Attributes:
        fault: called before each use of the store, and may raise; None without a fault.
        reads: number of attempts to read.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fault: Callable[[], None] | None = None
        self.reads = 0

    def _meet_fault(self) -> None:
        if self.fault is not None:
            self.fault()

    def read(self, name: str, start: int, end: int) -> bytes:
        self.reads += 1
        self._meet_fault()
        return super().read(name, start, end)

    def create(self, name: str, value: bytes) -> bool:
        self._meet_fault()
        return super().create(name, value)


def fail() -> None:
    raise ConnectionResetError("the store is gone")


def fail_oddly() -> None:
    raise RuntimeError


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(tmp_path / "share")


@pytest.fixture
def member(tmp_path: Path, store: FaultyStore) -> Iterator[Member]:
    with running_member(tmp_path / "member", lambda: store) as running:
        yield running


@contextmanager
def filled(tmp_path: Path, count: int) -> Iterator[None]:
    """Have another member save models in the share."""
    with running_member(tmp_path / "other", lambda: DirectoryStore(tmp_path / "share")) as other:
        for number in range(count):
            other.save_to_share(number)
    yield


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(fail, "ConnectionResetError: the store is gone"), (fail_oddly, "RuntimeError")],
    ids=["failure", "failure without a text"],
)
def test_store_that_fails_and_returns(
    tmp_path: Path, store: FaultyStore, member: Member, fault: Callable[[], None], reason: str
) -> None:
    with filled(tmp_path, 1):
        store.fault = fault
        outcome = member.load(0)
        assert outcome.cache.state == CacheState.MISS
        assert outcome.cache.reason == f"there is no entry for this token, and the share is unavailable: {reason}"
        store.fault = None
        assert member.load(0).cache.state == CacheState.HIT


def test_store_that_fails_is_left_alone(tmp_path: Path, store: FaultyStore, member: Member) -> None:
    """The circuit breaker: after three failures there are no attempts for a while."""
    with filled(tmp_path, 1):
        store.fault = fail
        for _ in range(8):
            assert member.load(0).cache.state == CacheState.MISS
        assert store.reads == 3
        assert member.reads("error") == 3 and member.reads("skipped") == 5


def test_saving_goes_on_without_the_store(store: FaultyStore, member: Member) -> None:
    store.fault = fail
    assert member.save(0).state == CacheState.SAVED
    assert member.load(0).cache.state == CacheState.HIT


def test_store_that_vanishes_and_one_that_forgets(tmp_path: Path, store: FaultyStore, member: Member) -> None:
    with filled(tmp_path, 2):
        assert member.load(0).cache.state == CacheState.HIT
        for path in sorted((tmp_path / "share").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / "share").rmdir()
        assert member.load(0).cache.state == CacheState.HIT, "it is in the local cache"
        assert member.load(1).cache.reason == "there is no entry for this token"
        member.save_to_share(1)


def test_store_that_hangs(tmp_path: Path, store: FaultyStore, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preparation gets its answer, although the read goes on, and a later read is not disturbed."""
    released = threading.Event()
    with filled(tmp_path, 2):
        monkeypatch.setattr(member.client, "_timeout_s", 0.2)
        store.fault = lambda: _wait(released)
        outcome = member.load(0)
        assert outcome.cache.state == CacheState.MISS
        assert outcome.cache.reason.endswith("it did not answer in time")
        monkeypatch.setattr(member.client, "_timeout_s", 60.0)
        store.fault = None
        assert member.load(1).cache.state == CacheState.HIT
        released.set()
        assert wait_until(lambda: member.load(0).cache.state == CacheState.HIT)


def _wait(event: threading.Event) -> None:
    assert event.wait(60)


def test_store_with_short_reads(tmp_path: Path, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that ends in the middle of a read is refused, and used when it is whole."""
    whole = FaultyStore.read
    with filled(tmp_path, 1):
        monkeypatch.setattr(FaultyStore, "read", lambda *arguments: whole(*arguments)[:-10])
        assert "refused" in member.load(0).cache.reason
        monkeypatch.undo()
        assert member.load(0).cache.state == CacheState.HIT


def test_racing_writers_leave_one_valid_object(tmp_path: Path, store: FaultyStore, member: Member) -> None:
    """A store that ignores conditions: both create, and the last one counts."""
    replace = DirectoryStore.replace

    def create(name: str, value: bytes) -> bool:
        replace(store, name, value)
        return True

    store.create = create  # type: ignore[method-assign]
    with running_member(tmp_path / "other", lambda: store) as other:
        member.save_to_share(0)
        other.save_to_share(0)
        for each in (member, other):
            each.store.clear(None)
            assert each.load(0).cache.state == CacheState.HIT
