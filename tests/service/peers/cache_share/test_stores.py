"""Stores of a share: directories, and what fsspec reaches; eviction, and the queue of writes."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnhal_service.metrics import catalog
from nnhal_service.peers.cache_share import writes
from nnhal_service.peers.cache_share.breaker import CircuitBreaker
from nnhal_service.peers.cache_share.directory_store import DirectoryStore
from nnhal_service.peers.cache_share.envelope import FOLDER
from nnhal_service.peers.cache_share.fsspec_store import FsspecStore
from nnhal_service.peers.cache_share.stores import ObjectStore
from nnhal_service.peers.cache_share.sweep import MARK, SWEEP_S, sweep
from nnhal_service.peers.cache_share.writes import QUEUE_LENGTH, Write, Writer
from tests.concurrency import run_concurrently, wait_until

NAME = f"{FOLDER}/1/cpu-{'0' * 16}/{'0' * 16}/00/{'0' * 62}"


@pytest.fixture(params=["directory", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "share")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    return FsspecStore(f"local://{tmp_path}/share", 10)


# ---- Stores ---------------------------------------------------------------------------------------------


def test_objects(store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.read("a/b", 0, 10)
    with pytest.raises(FileNotFoundError):
        store.modified_at("a/b")
    assert store.create("a/b", b"12345")
    assert not store.create("a/b", b"other")
    assert store.read("a/b", 1, 3) == b"23" and store.read("a/b", 3, 9) == b"45"
    before = store.modified_at("a/b")
    store.replace("a/b", b"678")
    assert store.read("a/b", 0, 9) == b"678"
    assert store.modified_at("a/b") >= before
    store.touch("a/b", b"678")
    assert store.create("a/c/d", b"")
    assert {each.name: each.size for each in store.list("a")} == {"a/b": 3, "a/c/d": 0}
    store.delete("a/b")
    store.delete("a/b")
    assert [each.name for each in store.list("a")] == ["a/c/d"]


def test_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    store = FsspecStore(f"local://{tmp_path}", 10)
    for name in ("a/b", "c/d"):
        store.create(name, b"1")
    listed = store._files.ls

    def ls(path: str, **options: object) -> object:
        if path.endswith("/c"):
            raise error
        return listed(path, **options)

    monkeypatch.setattr(store._files, "ls", ls)
    error: OSError = FileNotFoundError()  # it has just been removed
    assert [each.name for each in store.list("")] == ["a/b"]
    error = PermissionError()
    with pytest.raises(PermissionError):
        list(store.list(""))


@pytest.mark.parametrize("url", ["local://{}", "memory://versions"])
def test_version_changes_with_the_contents(tmp_path: Path, url: str) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    store = FsspecStore(url.format(tmp_path), 10)
    store.replace("a", b"1")
    described, (listed,) = store.describe("a"), store.list("")
    assert described.size == listed.size == 1
    assert [store.describe("a"), *store.list("")] == [described, listed]
    store.replace("a", b"2")
    assert store.describe("a").version != described.version
    assert [each.version for each in store.list("")] != [listed.version]


def test_one_of_many_writers_creates(store: ObjectStore) -> None:
    created: list[bool] = []
    run_concurrently(8, lambda number: created.append(store.create("a/b", bytes([number]) * 1000)))
    assert created.count(True) >= 1
    value = store.read("a/b", 0, 2000)
    assert len(value) == 1000 and len(set(value)) == 1


def test_directory_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("hard links are not supported")

    monkeypatch.setattr(os, "link", refuse)
    share = DirectoryStore(tmp_path)
    assert share.create("a/b", b"1") and share.read("a/b", 0, 9) == b"1"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b"]


def test_directory_follows_no_links_and_waits_for_no_pipes(tmp_path: Path) -> None:
    share = DirectoryStore(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        share.read("link", 0, 9)
    with pytest.raises(OSError):  # a pipe has no position
        share.read("pipe", 0, 9)


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    share = DirectoryStore(tmp_path)
    share.create("a/b", b"1")
    old, new = tmp_path / "a/.new-old", tmp_path / "a/.new-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert [each.name for each in share.list("a")] == ["a/b"]
    assert not old.exists() and new.exists()


# ---- Eviction -------------------------------------------------------------------------------------------


def name_of(number: int) -> str:
    return NAME[:-2] + f"{number:02d}"


def fill(share: DirectoryStore, root: Path, count: int) -> None:
    """Write objects of 100 bytes, the first one longest ago."""
    for number in range(count):
        share.create(name_of(number), bytes(100))
        os.utime(root / name_of(number), (1000 + number, 1000 + number))


def test_sweep_removes_the_oldest(tmp_path: Path) -> None:
    share = DirectoryStore(tmp_path)
    fill(share, tmp_path, 10)
    (tmp_path / FOLDER / "README").write_bytes(bytes(10_000))
    now = share.modified_at(name_of(0)) + 10**9
    assert sweep(share, 1000, now) == 0, "they are not too large together"
    (tmp_path / MARK).unlink()
    assert sweep(share, 500, now) == 6
    assert sorted(each.name for each in share.list(FOLDER) if each.size == 100) == [name_of(n) for n in range(6, 10)]
    assert (tmp_path / FOLDER / "README").exists()


def test_one_member_sweeps(tmp_path: Path) -> None:
    share = DirectoryStore(tmp_path)
    fill(share, tmp_path, 10)
    share.replace(MARK, b"")
    now = share.modified_at(MARK)
    assert sweep(share, 500, now + SWEEP_S / 2) == 0
    assert sweep(share, 500, now - SWEEP_S / 2) == 0, "clocks differ"
    assert sweep(share, 500, now + SWEEP_S + 1) == 6


# ---- The queue of writes --------------------------------------------------------------------------------


class Results:
    """Counts of a writer, by metric and result."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def __call__(self, metric: object, *labels: str, amount: float = 1) -> None:
        if metric is catalog.SHARE_WRITES:
            self.writes += labels


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[Callable[[], int]]:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    yield lambda: os.open(path, os.O_RDONLY)


def refresh(name: str, file: int) -> Write:
    return Write(name, b"", (file,), is_refresh=True)


def test_full_queue_drops_writes_and_closes_their_files(
    tmp_path: Path, results: Results, open_file: Callable[[], int]
) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Stuck(DirectoryStore):
        def modified_at(self, name: str) -> float:
            entered.set()
            assert leave.wait(60)
            return super().modified_at(name)

    share = Stuck(tmp_path)
    share.create("a", b"1")
    writer = Writer(lambda: share, CircuitBreaker(lambda reason: None), results, 0)
    writer.add(refresh("a", open_file()))
    assert entered.wait(60)
    files = [open_file() for _ in range(QUEUE_LENGTH + 3)]
    for file in files:
        writer.add(refresh("a", file))
    assert results.writes == ["dropped"] * 3
    for file in files[QUEUE_LENGTH:]:
        with pytest.raises(OSError):
            os.fstat(file)
    assert writer.close(0.01) == QUEUE_LENGTH + 1, "those are given up at the end"
    leave.set()
    assert wait_until(lambda: results.writes.count("recent") == QUEUE_LENGTH + 1)


def test_failed_writes_are_tried_again(tmp_path: Path, results: Results, open_file: Callable[[], int]) -> None:
    attempts: list[str] = []

    class Failing(DirectoryStore):
        def modified_at(self, name: str) -> float:
            attempts.append(name)
            if name == "never" or len(attempts) < 2:
                raise ConnectionError("no route")
            return super().modified_at(name)

    share = Failing(tmp_path)
    share.create("a", b"1")
    reasons: list[str] = []
    writer = Writer(lambda: share, CircuitBreaker(reasons.append), results, 0)
    writer.add(refresh("a", open_file()))
    assert wait_until(lambda: results.writes == ["recent"]) and attempts == ["a", "a"]
    writer.add(refresh("never", open_file()))
    assert wait_until(lambda: results.writes == ["recent", "error"]) and attempts == ["a", "a", *["never"] * 3]
    assert reasons == ["ConnectionError: no route"], "the third failure in a row opens the circuit"
    assert writer.close(60) == 0


def test_old_objects_that_are_used_are_refreshed(
    tmp_path: Path, results: Results, open_file: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "declared_bytes", len)  # the content is not an entry
    share = DirectoryStore(tmp_path / "share")
    share.create("a", b"content")
    os.utime(tmp_path / "share/a", (0, 0))
    writer = Writer(lambda: share, CircuitBreaker(lambda reason: None), results, 0)
    writer.add(refresh("a", open_file()))
    assert wait_until(lambda: results.writes == ["refreshed"])
    assert share.modified_at("a") > 0
    writer.add(refresh("a", open_file()))
    assert wait_until(lambda: results.writes == ["refreshed", "recent"])
    assert writer.close(60) == 0
