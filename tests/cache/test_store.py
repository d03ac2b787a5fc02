"""The store: entries by identity and token, replacement, eviction, quarantine, leftovers."""

import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnhal_cache.errors import CacheError, TooLargeError
from nnhal_cache.store import MAX_QUARANTINED, Counters, Store
from nnhal_cache.verify import unknown_files, verify_entries
from tests.cache.entries import files_below, load, read_all, save, token

DEAD = "dead" * 8
"""Folder name of a writer that was killed."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def age(store: Store, *numbers: int) -> None:
    """Set last uses 100 seconds apart, the first one longest ago, because file system clocks are coarse."""
    for seconds, number in enumerate(reversed(numbers), 1):
        usage = store.layout.entry_link("me", token(number)) / "used"
        last_used = time.time() - 100 * seconds
        os.utime(usage, (last_used, last_used))


def test_saved_entry_is_found(store: Store) -> None:
    assert load(store, 1) is None
    save(store, 1, b"m" * 1000, b"d" * 2000)
    assert load(store, 1) == (b"m" * 1000, b"d" * 2000)
    assert load(store, 2) is None
    assert load(Store(store.layout.root, 2**20), 1) == (b"m" * 1000, b"d" * 2000)


def test_identities_do_not_see_each_other(store: Store) -> None:
    save(store, 1, b"mine")
    save(store, 1, b"theirs", identity="you")
    assert load(store, 1) == (b"mine", b"data")
    assert load(store, 1, "you") == (b"theirs", b"data")
    assert load(store, 1, "") is None
    assert store.clear("you") == 1
    assert load(store, 1) is not None


def test_entry_can_be_replaced_while_it_is_read(store: Store) -> None:
    save(store, 1, b"old")
    old = store.open_entry("me", token(1))
    assert old is not None
    save(store, 1, b"new")
    with old:
        assert read_all(old.model_fd) == b"old"
    assert load(store, 1) == (b"new", b"data")
    assert len(list(store.layout.generations.iterdir())) == 1


def test_replacing_an_entry_is_atomic_for_readers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, 1, b"old")
    seen = []
    replace = Path.replace

    def replace_between_loads(path: Path, target: Path) -> Path:
        seen.append(load(store, 1))
        replaced = replace(path, target)
        seen.append(load(store, 1))
        return replaced

    monkeypatch.setattr(Path, "replace", replace_between_loads)
    save(store, 1, b"new")
    assert seen == [(b"old", b"data"), (b"new", b"data")]


def test_entry_without_commit_is_deleted(store: Store) -> None:
    save(store, 1, b"old")
    before = files_below(store.layout.root), descriptors()
    with store.write("me", token(1)) as pending:
        os.write(pending.model_fd, b"half")
    with pytest.raises(ZeroDivisionError), store.write("me", token(2)) as pending:
        raise ZeroDivisionError
    assert (files_below(store.layout.root), descriptors()) == before
    assert load(store, 1) == (b"old", b"data")


def test_descriptors_are_closed(store: Store) -> None:
    save(store, 1)
    before = descriptors()
    for _ in range(5):
        save(store, 1)
        load(store, 1)
        load(store, 2)
        store.list()
        store.quarantine("me", token(1), "test")
    assert descriptors() == before


def test_closing_an_entry_twice_closes_its_descriptors_once(store: Store) -> None:
    save(store, 1)
    entry = store.open_entry("me", token(1))
    assert entry is not None
    entry.close()
    other = os.open(store.layout.root / "layout", os.O_RDONLY)  # gets the number of the closed descriptor
    entry.close()
    assert os.fstat(other)
    os.close(other)


def test_files_are_private(store: Store) -> None:
    save(store, 1)
    store.quarantine("me", token(1), "test")
    save(store, 1)
    for path in [store.layout.root, *store.layout.root.rglob("*")]:
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_list_shows_the_facts_of_entries(store: Store) -> None:
    assert store.list() == []
    start = time.time() - 1
    save(store, 1, b"12345", b"123")
    save(store, 2, identity="you")
    for _ in range(3):
        load(store, 1)
    (mine,) = store.list("me")
    assert (mine.identity, mine.token, mine.size, mine.hits, mine.backends) == ("me", token(1), 8, 3, "CpuRef 1.0")
    assert start < mine.saved_at <= mine.last_used_at < time.time() + 1
    assert {info.identity for info in store.list()} == {"me", "you"}


def test_hits_are_counted_and_reset_by_saving_again(store: Store) -> None:
    save(store, 1)
    load(store, 1)
    age(store, 1)
    before = store.list("me")[0].last_used_at
    load(store, 1)
    assert store.list("me")[0].last_used_at > before
    save(store, 1)
    assert store.list("me")[0].hits == 0


def test_clear_removes_all_or_named_entries(store: Store) -> None:
    for number in range(4):
        save(store, number)
    assert store.clear("me", [token(1), token(9), b"short"]) == 1
    assert load(store, 1) is None
    assert store.clear("unknown") == 0
    assert store.clear(None) == 3
    assert files_below(store.layout.root) == ["aside", "entries", "files", "generations", "layout"]


def test_least_recently_used_entry_is_evicted(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 1000)
    for number in range(3):
        save(store, number, b"m" * 200, b"d" * 100)
    age(store, 1, 0, 2)
    load(store, 1)
    save(store, 3, b"m" * 200, b"d" * 100)
    assert [load(store, number) is not None for number in range(4)] == [False, True, True, True]
    assert store.counters().evictions == 1
    assert len(list(store.layout.generations.iterdir())) == 3


def test_eviction_includes_all_identities(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 1000)
    save(store, 1, b"m" * 800, identity="you")
    save(store, 1, b"m" * 800)
    assert store.list("you") == []
    assert [info.identity for info in store.list()] == ["me"]


def test_entry_larger_than_the_cache_is_rejected_and_the_old_one_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 100)
    save(store, 1)
    with pytest.raises(TooLargeError, match="has 105 bytes; the cache has a limit of 100 bytes"):
        save(store, 1, b"m" * 101)
    assert load(store, 1) == (b"model", b"data")
    assert len(list(store.layout.generations.iterdir())) == 1


def test_quarantined_entry_is_a_miss(store: Store) -> None:
    save(store, 1, b"bad")
    assert store.quarantine("me", token(1), "tampered")
    assert load(store, 1) is None
    (quarantined,) = store.layout.quarantine.iterdir()
    assert (quarantined / "model").read_bytes() == b"bad"
    assert '"tampered"' in (quarantined / "why").read_text()
    save(store, 1, b"good")
    assert load(store, 1) == (b"good", b"data")
    assert not store.quarantine("me", token(2), "not there")


def test_replacement_of_an_invalid_entry_is_not_quarantined(store: Store) -> None:
    save(store, 1, b"bad")
    entry = store.open_entry("me", token(1))
    assert entry is not None
    with entry:
        save(store, 1, b"good")
        assert not store.quarantine("me", token(1), "tampered", entry.generation)
    assert load(store, 1) == (b"good", b"data")


def test_quarantine_is_limited(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 80_000)
    for number in range(MAX_QUARANTINED + 3):
        save(store, number, b"%d" % number, b"")
        store.quarantine("me", token(number), "test")
    kept = sorted((path / "model").read_text() for path in store.layout.quarantine.iterdir())
    assert kept == sorted(str(number) for number in range(3, MAX_QUARANTINED + 3))
    save(store, 1, b"m" * 30_000)
    store.quarantine("me", token(1), "large")
    assert list(store.layout.quarantine.iterdir()) == []


def test_counters(store: Store) -> None:
    load(store, 1)
    save(store, 1)
    load(store, 1)
    load(store, 1)
    store.quarantine("me", token(1), "test")
    mine = Counters(hits=2, misses=1, saves=1, set_aside=1)
    assert (store.counters(), store.counters("me"), store.counters("you")) == (mine, mine, Counters())
    save(store, 1, identity="you")
    assert (store.counters("you"), store.counters("me")) == (Counters(saves=1), mine)
    assert store.counters() == replace(mine, saves=2)


def test_sweep_removes_leftovers_and_spares_running_writers(store: Store) -> None:
    save(store, 1)
    (store.layout.generations / DEAD).mkdir()
    (store.layout.generations / DEAD / "model").write_bytes(b"half")
    (store.layout.generations / f"{DEAD}.link").symlink_to("nowhere")
    with store.write("me", token(2)) as pending:
        assert store.sweep() == 2
        os.write(pending.model_fd, b"late")
        pending.commit()
    assert load(store, 2) == (b"late", b"")
    (store.layout.generations / DEAD).mkdir()
    save(store, 3)
    assert len(list(store.layout.generations.iterdir())) == 3
    assert store.sweep() == 0


def test_entry_with_a_missing_file_is_a_miss_and_can_be_replaced(store: Store) -> None:
    save(store, 1)
    (store.layout.entry_link("me", token(1)) / "data").unlink()
    assert load(store, 1) is None
    assert store.list() == []
    save(store, 1)
    assert load(store, 1) is not None


def test_entry_with_a_damaged_manifest_is_listed_and_cleared(store: Store) -> None:
    save(store, 1)
    (store.layout.entry_link("me", token(1)) / "about").write_bytes(b"\xff{")
    assert [(info.identity, info.token) for info in store.list("me")] == [("", token(1))]
    assert store.clear("me") == 1


def test_cache_of_0_bytes_is_off(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 0)
    assert load(store, 1) is None
    with pytest.raises(CacheError, match="off"):
        save(store, 1)
    assert (store.list(), store.clear(None), store.sweep()) == ([], 0, 0)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("wrong", [b"", b"x" * 31, b"x" * 33])
def test_tokens_have_32_bytes(store: Store, wrong: bytes) -> None:
    for call in (store.open_entry, store.write):
        with pytest.raises(CacheError, match="32 bytes"):
            call("me", wrong)


def test_unknown_files_are_ignored_and_stay(store: Store) -> None:
    save(store, 1)
    owner = store.layout.entry_link("me", token(1)).parent
    foreign = [
        store.layout.entries / "README",
        store.layout.entries / ("0" * 32),
        owner / "README",
        owner / ("0" * 64),
        store.layout.generations / "README",
        store.layout.quarantine / "README",
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (owner.parent / "folder").mkdir()
    save(store, 2)
    save(store, 1, b"new")
    assert store.quarantine("me", token(2), "test")
    assert load(store, 1) == (b"new", b"data")
    assert [entry.token for entry in store.list()] == [token(1)]
    assert store.sweep() == 0
    assert unknown_files(store) == [*sorted([*foreign[:4], owner.parent / "folder"]), *foreign[4:]]
    assert [entry.problems for entry in verify_entries(store, None)] == [()]
    assert store.clear(None) == 1
    assert all(path.exists() for path in foreign)


def test_opening_without_use_counts_nothing(store: Store) -> None:
    save(store, 1)
    age(store, 1)
    (before,) = store.list()
    entry = store.open_entry("me", token(1), used=False)
    assert entry is not None
    entry.close()
    assert store.open_entry("me", token(2), used=False) is None
    assert store.list() == [before]
    assert (store.counters().hits, store.counters().misses) == (0, 0)


@pytest.mark.parametrize("name", ["model", "data", "used"])
def test_planted_pipe_does_not_block(store: Store, name: str) -> None:
    save(store, 1)
    path = store.layout.entry_link("me", token(1)) / name
    path.unlink()
    os.mkfifo(path)
    assert (load(store, 1) is None) == (name != "used")
    save(store, 1, b"new")
    assert load(store, 1) == (b"new", b"data")


def test_planted_file_with_the_name_of_a_generation_is_removed(store: Store) -> None:
    save(store, 1)
    planted = store.layout.generations / DEAD
    planted.touch()
    save(store, 2, b"saved")
    assert load(store, 2) == (b"saved", b"data") and not planted.exists()
    os.mkfifo(planted)
    assert store.sweep() == 1 and not planted.exists()


def test_file_in_place_of_a_generation_is_a_miss(store: Store) -> None:
    save(store, 1)
    folder = store.layout.entry_link("me", token(1)).resolve()
    folder.rename(folder.with_name("elsewhere"))
    folder.touch()
    assert load(store, 1) is None
    save(store, 1, b"new")
    assert load(store, 1) == (b"new", b"data")


def test_the_quota_of_an_identity_evicts_its_own_entries_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", 10_000)
    save(store, 1, b"t" * 800, identity="you")
    for number in (2, 3, 4):
        with store.write("me", token(number)) as pending:
            os.write(pending.model_fd, b"m" * 400)
            pending.commit(quota=1000)
    assert {info.token for info in store.list("me")} == {token(3), token(4)}
    assert len(store.list("you")) == 1
    assert store.counters("me").evictions == 1
    with store.write("me", token(5)) as pending:
        os.write(pending.model_fd, b"m" * 1001)
        with pytest.raises(CacheError, match="has 1001 bytes; the identity has a quota of 1000 bytes"):
            pending.commit(quota=1000)
    assert len(store.list("me")) == 2
