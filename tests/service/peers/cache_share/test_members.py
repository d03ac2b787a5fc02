"""Members of a fleet with a share in a directory: what one compiles, the others use, and nothing else."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal.types import CacheState
from nnhal_service.identity.identity import Identity
from nnhal_service.peers.cache_share.client import NO_ENTRY
from nnhal_service.peers.cache_share.directory_store import DirectoryStore
from nnhal_service.peers.cache_share.envelope import NAME, PRELUDE_BYTES
from tests.concurrency import run_concurrently, wait_until
from tests.driver.one_operation import execute
from tests.service.model_cache.saving_model import SIZE, weights
from tests.service.peers.cache_share.member import LABEL, Member, digest_of, running_member, running_members

ALICE, BOB = Identity("token", "alice"), Identity("token", "bob")
OTHER_KEY = bytes(32)


@pytest.fixture
def share(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "share")


@pytest.fixture
def first(tmp_path: Path, share: DirectoryStore) -> Iterator[Member]:
    with running_member(tmp_path / "first", lambda: share) as member:
        yield member


@pytest.fixture
def second(tmp_path: Path, share: DirectoryStore) -> Iterator[Member]:
    with running_member(tmp_path / "second", lambda: share) as member:
        yield member


def objects(tmp_path: Path) -> list[Path]:
    """Return the objects in the share, the oldest first."""
    found = [path for path in (tmp_path / "share").rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def reason_of_miss(member: Member, number: int, identity: Identity = ALICE, digest: bytes = b"") -> str:
    outcome = member.load(number, identity, digest)
    assert outcome.prepared_model is None and outcome.cache.state == CacheState.MISS
    return outcome.cache.reason


def test_model_is_compiled_once(tmp_path: Path, first: Member, second: Member) -> None:
    first.save_to_share(0)
    outcome = second.load(0)
    assert outcome.cache.state == CacheState.HIT
    (output,) = execute(outcome, [np.zeros(SIZE, np.float32)])[1]
    np.testing.assert_array_equal(output, weights(0))
    (name,) = (str(path.relative_to(tmp_path / "share")) for path in objects(tmp_path))
    assert NAME.fullmatch(name)
    assert wait_until(lambda: second.reads("hit") == 1)
    assert second.load(0).cache.state == CacheState.HIT
    assert first.reads("hit") == first.reads("absent") == 0, "it was saved here"
    assert sum(second.counts[name] for name in second.counts if "share_reads" in name) == 1, "it is here now"
    (theirs,), (ours,) = second.store.list(), first.store.list()
    assert (ours.origin, theirs.origin) == ("", f"{LABEL}, saved by {os.uname().nodename}")
    assert theirs.hits == 2 and second.store.counters().misses == 0


def test_check_finds_what_is_in_the_share(first: Member, second: Member) -> None:
    from nnhal_service.sessions.session import Session
    from tests.service.model_cache.saving_model import stored_cache

    first.save_to_share(0, ALICE)
    session = Session("test", ALICE)
    assert second.arguments.check(second.device, session, stored_cache(1)).reason == NO_ENTRY
    assert second.arguments.check(second.device, session, stored_cache(0)).state == CacheState.HIT


def test_identities_have_entries_of_their_own(first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    assert reason_of_miss(second, 0, BOB) == NO_ENTRY
    assert second.load(0, ALICE).cache.state == CacheState.HIT
    assert reason_of_miss(second, 0, BOB) == NO_ENTRY


@pytest.mark.parametrize("number, identity", [(1, ALICE), (0, BOB)], ids=["another token", "another identity"])
def test_object_at_another_name_is_refused(
    tmp_path: Path, first: Member, second: Member, number: int, identity: Identity
) -> None:
    first.save_to_share(0, ALICE)
    (original,) = objects(tmp_path)
    first.save_to_share(number, identity)
    (other,) = set(objects(tmp_path)) - {original}
    other.write_bytes(original.read_bytes())
    assert "refused: it was saved for another token, identity, version or CPU" in reason_of_miss(
        second, number, identity
    )
    assert second.store.list() == [] and second.load(0, ALICE).cache.state == CacheState.HIT


def test_other_keys_have_other_entries(tmp_path: Path, share: DirectoryStore, first: Member) -> None:
    first.save_to_share(0, ALICE)
    (ours,) = objects(tmp_path)
    with running_member(tmp_path / "other", lambda: share, key=OTHER_KEY) as foreign:
        assert reason_of_miss(foreign, 0) == NO_ENTRY
        foreign.save_to_share(0, ALICE)
        (theirs,) = set(objects(tmp_path)) - {ours}
        for member in foreign.store.list():
            foreign.store.clear(None, [member.token])
        theirs.write_bytes(ours.read_bytes())
        assert "refused: it was saved with another key" in reason_of_miss(foreign, 0)


def test_refused_object_is_replaced(tmp_path: Path, first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    (path,) = objects(tmp_path)
    valid = path.read_bytes()
    # the beginning, by which writers recognize the same model, is as it was
    path.write_bytes(valid[:-1] + bytes([valid[-1] ^ 1]))
    assert "refused: the data cache was changed" in reason_of_miss(second, 0)
    second.save_to_share(0, ALICE)
    assert second.counts["nnhal_cache_share_writes replaced"] == 1
    first.store.clear(None)
    assert first.load(0, ALICE).cache.state == CacheState.HIT


def test_last_model_of_a_token_counts(first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    second.save_to_share(1, ALICE, token=0)
    assert second.counts["nnhal_cache_share_writes replaced"] == 1
    first.store.clear(None)
    outcome = first.load(0, ALICE)
    assert outcome.cache.state == CacheState.HIT
    (output,) = execute(outcome, [np.zeros(SIZE, np.float32)])[1]
    np.testing.assert_array_equal(output, weights(1))


def test_saving_twice_writes_once(tmp_path: Path, first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    (path,) = objects(tmp_path)
    before = path.stat()
    second.save_to_share(0, ALICE)
    assert second.counts["nnhal_cache_share_writes exists"] == 1
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_entry_of_another_model_is_refused(first: Member, second: Member) -> None:
    first.save_to_share(0)
    outcome = second.load(0, digest=digest_of(1))
    assert outcome.cache.reason.endswith("refused: it was saved for another model")
    assert second.load(0, digest=digest_of(0)).cache.state == CacheState.HIT


def test_entry_that_was_put_back_is_refused(tmp_path: Path, first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    (path,) = objects(tmp_path)
    old = path.read_bytes()
    assert second.load(0, ALICE).cache.state == CacheState.HIT
    second.save_to_share(1, ALICE, token=0)
    second.store.clear(None)
    path.write_bytes(old)
    assert "refused: an older entry was put back" in reason_of_miss(second, 0)


def test_entry_that_is_too_large_stays_in_the_share(first: Member, second: Member) -> None:
    first.save_to_share(0, ALICE)
    second.store.max_bytes = 1000
    assert reason_of_miss(second, 0) == "the entry in the share is larger than 1000 bytes, the limit here"
    assert second.reads("too_large") == 1


def test_object_is_fetched_once_for_all_workers(tmp_path: Path, share: DirectoryStore, first: Member) -> None:
    first.save_to_share(0, ALICE)
    reading, names = threading.Event(), list[str]()

    class Slow(DirectoryStore):
        def read(self, name: str, start: int, end: int) -> bytes:
            names.append(name)
            assert reading.wait(60)
            return super().read(name, start, end)

    slow = Slow(tmp_path / "share")
    with running_members(tmp_path / "workers", lambda: slow, 3) as workers:

        def load(number: int) -> None:
            if number == 3:
                daemon = workers[0].daemon
                assert wait_until(lambda: [len(read.followers) for read in [*daemon._reads.values()]] == [2])
                reading.set()
            else:
                assert workers[number].load(0, ALICE).cache.state == CacheState.HIT

        run_concurrently(4, load)
    assert len(names) == 1


def test_worker_that_dies_hands_on(tmp_path: Path, first: Member) -> None:
    """The leader gives up: those that wait look for themselves, and find nothing."""
    first.save_to_share(0, ALICE)
    refusals = threading.Event()

    def fail(*_: object) -> None:
        refusals.set()
        raise MemoryError

    with running_member(tmp_path / "second", lambda: DirectoryStore(tmp_path / "share")) as second:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(second.client, "_adopt", fail)
            with pytest.raises(MemoryError):
                second.load(0, ALICE)
        assert refusals.is_set()
        assert wait_until(lambda: not second.daemon._reads)
        assert second.load(0, ALICE).cache.state == CacheState.HIT


class _Mutated(DirectoryStore):
    """A share that answers with other bytes than it has."""

    def __init__(self, root: Path, content: bytes) -> None:
        super().__init__(root)
        self._content = content

    def read(self, name: str, start: int, end: int) -> bytes:
        return self._content[start:end]


@pytest.mark.slow
def test_mutated_objects_are_never_used(tmp_path: Path, first: Member) -> None:
    first.save_to_share(0, ALICE)
    (path,) = objects(tmp_path)
    valid = path.read_bytes()
    share = _Mutated(tmp_path / "share", valid)
    with running_member(tmp_path / "second", lambda: share) as second:
        positions = st.one_of(st.integers(0, PRELUDE_BYTES + 300), st.integers(0, len(valid) - 1))

        @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(
            st.lists(st.tuples(positions, st.integers(1, 255)), max_size=4, unique_by=lambda flip: flip[0]),
            st.one_of(st.just(len(valid)), st.integers(0, len(valid) - 1)),
            st.binary(max_size=20),
        )
        def check(flips: list[tuple[int, int]], length: int, tail: bytes) -> None:
            mutated = bytearray(valid)
            for position, flip in flips:
                mutated[position] ^= flip
            share._content = bytes(mutated[:length]) + tail
            if share._content == valid:
                return
            assert reason_of_miss(second, 0).startswith("the entry in the share was refused: ")
            assert second.store.list() == []

        check()
        share._content = valid
        assert second.load(0, ALICE).cache.state == CacheState.HIT
