"""Copies of models at a URL: what appears, what stays while something is wrong, and what a URL must not do."""

import json
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnhal_service.peers.cache_share.stores import StoredObject
from nnhal_service.repository import mirror as mirrors
from nnhal_service.repository.mirror import Mirror
from nnhal_service.repository.model_folder import DELAYS_NAME, Place, locate
from tests.service.repository.model_files import put

pytest.importorskip("fsspec", reason="the extra `share` is not installed")

from nnhal_service.peers.cache_share.fsspec_store import FsspecStore

URL = "store://models"
BYTES = 10_000


class FaultyStore(FsspecStore):
    """A store in a folder that can fail.

    Attributes:
        fault: called before each request with its kind and its object.
        extra: objects that are listed besides.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(f"local://{root}", 10)
        self.fault: Callable[[str, str], None] = lambda kind, name: None
        self.extra: list[StoredObject] = []
        self.requests: list[str] = []

    def list(self, folder: str) -> Iterator[StoredObject]:
        self._note("list", folder)
        yield from super().list(folder)
        yield from self.extra

    def describe(self, name: str) -> StoredObject:
        self._note("describe", name)
        return super().describe(name)

    def read(self, name: str, start: int, end: int) -> bytes:
        self._note("read", name)
        return super().read(name, start, end)

    def _note(self, kind: str, name: str) -> None:
        self.requests.append(f"{kind} {name}")
        self.fault(kind, name)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    path = tmp_path / "bucket"
    path.mkdir()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "copies"
    path.mkdir()
    return path


@pytest.fixture
def store(bucket: Path) -> FaultyStore:
    return FaultyStore(bucket)


@pytest.fixture
def mirror(store: FaultyStore, folder: Path) -> Mirror:
    return create(store, folder)


def create(store: FaultyStore, folder: Path, max_bytes: int = BYTES) -> Mirror:
    return Mirror(lambda: store, URL, folder, max_bytes)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files that workers see, by their names."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".")}


def delays(folder: Path) -> dict[str, str]:
    values: dict[str, str] = json.loads((folder / DELAYS_NAME).read_text())
    return values


def fail(*names: str, error: Exception | None = None) -> Callable[[str, str], None]:
    """Return a fault of the requests for some objects."""

    def fault(_kind: str, name: str) -> None:
        if name in names:
            raise error or OSError("no access")

    return fault


def test_files_of_models_are_copied(mirror: Mirror, bucket: Path, folder: Path) -> None:
    files = {
        "single.tflite": b"1",
        "single.toml": b"2",
        "any/of this.tflite": b"3",
        "numbered/config.toml": b"4",
        "numbered/1/model.tflite": b"5",
        "numbered/12/model.tflite": b"",
        "numbered/12/config.toml": b"7",
    }
    others = ("readme.txt", ".hidden.tflite", "numbered/1/notes.tflite", "numbered/01/model.tflite", "a/b/c/d.tflite")
    for name, content in {**files, **dict.fromkeys(others, b"")}.items():
        put(bucket / name, content)
    mirror.update()
    assert contents(folder) == files
    assert delays(folder) == {}


def test_only_what_has_changed_is_read(mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path) -> None:
    put(bucket / "a.tflite", b"1")
    put(bucket / "b.tflite", b"2")
    mirror.update()
    put(bucket / "a.tflite", b"3")
    store.requests.clear()
    mirror.update()
    create(store, folder).update()
    assert [request for request in store.requests if request.startswith("read")] == ["read a.tflite"]
    assert contents(folder) == {"a.tflite": b"3", "b.tflite": b"2"}


def test_process_that_ends_in_between_goes_on_where_it_was(store: FaultyStore, bucket: Path, folder: Path) -> None:
    put(bucket / "a.tflite", b"1")
    put(bucket / "b/1/model.tflite", b"2")

    class End(BaseException):
        pass

    def end(_kind: str, name: str) -> None:
        if name == "b/1/model.tflite":
            raise End

    store.fault = end
    with pytest.raises(End):
        create(store, folder).update()
    store.fault = fail()
    store.requests.clear()
    put(folder / ".unfinished/1/config.toml", b"of another model")  # of a process that was killed
    create(store, folder).update()
    assert [request for request in store.requests if request.startswith("read")] == ["read b/1/model.tflite"]
    assert contents(folder) == {"a.tflite": b"1", "b/1/model.tflite": b"2"}


def test_what_is_gone_is_removed(mirror: Mirror, bucket: Path, folder: Path) -> None:
    for name in ("a/1/model.tflite", "a/2/model.tflite", "a/2/config.toml", "b/1/model.tflite", "c.tflite"):
        put(bucket / name, b"1")
    mirror.update()
    shutil.rmtree(bucket / "a/1")
    shutil.rmtree(bucket / "b")
    mirror.update()
    assert contents(folder).keys() == {"a/2/model.tflite", "a/2/config.toml", "c.tflite"}
    assert not (folder / "b").exists() and not (folder / "a/1").exists()


def test_new_version_appears_with_all_its_files(mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path) -> None:
    put(bucket / "a/1/model.tflite", b"1")
    put(bucket / "a/1/config.toml", b"2")
    seen: list[dict[str, bytes]] = []
    store.fault = lambda kind, name: seen.append(contents(folder))
    mirror.update()
    assert seen and not any(seen)
    assert len(contents(folder)) == 2


def test_nothing_is_removed_while_the_url_cannot_be_read(
    store: FaultyStore, bucket: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nnhal.service")
    put(bucket / "a.tflite", b"1")
    mirror = create(store, folder)
    mirror.update()
    for error in (OSError("no route"), PermissionError("no access"), RuntimeError(), FileNotFoundError("bucket")):
        store.fault = fail("", error=error)
        mirror = create(store, folder)
        mirror.update()
        mirror.update()
        assert contents(folder) == {"a.tflite": b"1"}
        assert delays(folder)[""].startswith(f"{URL} is not copied: {type(error).__name__}")
    assert [record.message for record in caplog.records].count("mirror-failed") == 4, "once for each problem"
    store.fault = fail()
    mirror.update()
    assert delays(folder) == {} and caplog.records[-1].message == "mirror-recovered"


@pytest.mark.parametrize("is_removed", [False, True])
def test_empty_or_missing_folder_removes_nothing(mirror: Mirror, bucket: Path, folder: Path, is_removed: bool) -> None:
    put(bucket / "a.tflite", b"1")
    mirror.update()
    (bucket / "a.tflite").unlink()
    if is_removed:
        bucket.rmdir()
    mirror.update()
    assert contents(folder) == {"a.tflite": b"1"}
    assert ("FileNotFoundError" if is_removed else "there are no models") in delays(folder)[""]


def test_folder_that_cannot_be_listed_removes_nothing(
    mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket / "a/1/model.tflite", b"1")
    put(bucket / "b.tflite", b"1")
    mirror.update()
    listed = store._files.ls

    def ls(path: str, **options: object) -> object:
        if path.endswith("/a"):
            raise PermissionError("no access")
        return listed(path, **options)

    monkeypatch.setattr(store._files, "ls", ls)
    mirror.update()
    assert contents(folder).keys() == {"a/1/model.tflite", "b.tflite"}
    assert "PermissionError" in delays(folder)[""]


def test_file_that_cannot_be_read_keeps_the_good_ones(
    mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path
) -> None:
    put(bucket / "a/1/model.tflite", b"1")
    put(bucket / "b.tflite", b"1")
    mirror.update()
    shutil.rmtree(bucket / "a/1")
    put(bucket / "a/2/model.tflite", b"2")
    put(bucket / "b.tflite", b"2")
    store.fault = fail("a/2/model.tflite")
    for _ in range(5):
        mirror.update()
    assert contents(folder) == {"a/1/model.tflite": b"1", "b.tflite": b"2"}
    assert delays(folder) == {"a/2/model.tflite": "a/2/model.tflite is not copied: OSError: no access"}
    assert store.requests.count("describe a/2/model.tflite") == 3, "it is left alone for a while"
    store.fault = fail()
    put(bucket / "a/2/model.tflite", b"new")
    mirror.update()
    assert contents(folder) == {"a/2/model.tflite": b"new", "b.tflite": b"2"}


def test_store_that_dies_is_left_alone_until_the_next_time(
    mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path
) -> None:
    for number in range(20):
        put(bucket / f"{number}.tflite", b"1")
    store.fault = fail(*(f"{number}.tflite" for number in range(20)))
    mirror.update()
    assert len(store.requests) == 2
    store.fault = fail("0.tflite", "1.tflite", "10.tflite")
    for _ in range(20):  # others get their turn although three files always fail
        mirror.update()
    assert len(contents(folder)) == 17
    assert delays(folder).keys() == {"0.tflite", "1.tflite", "10.tflite"}


def test_file_that_changes_while_it_is_read_is_copied_later(
    mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path
) -> None:
    put(bucket / "a.tflite", b"old")
    mirror.update()
    put(bucket / "a.tflite", b"between")

    def change(kind: str, name: str) -> None:
        if kind == "read":
            put(bucket / "a.tflite", b"younger")

    store.fault = change
    mirror.update()
    assert contents(folder) == {"a.tflite": b"old"}
    assert "it has changed while it was copied" in delays(folder)["a.tflite"]
    store.fault = fail()
    mirror.update()
    assert contents(folder) == {"a.tflite": b"younger"} and delays(folder) == {}


def test_limits(store: FaultyStore, bucket: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket / "a.tflite", bytes(600))
    put(bucket / "b.tflite", bytes(500))
    put(bucket / "c.tflite", bytes(300))
    mirror = create(store, folder, 1000)
    mirror.update()
    assert contents(folder).keys() == {"a.tflite", "c.tflite"}
    assert "it has 500 bytes; expected at most 400" in delays(folder)["b.tflite"]
    put(bucket / "a.tflite", bytes(700))  # in place of the old one
    mirror.update()
    assert len(contents(folder)["a.tflite"]) == 700
    monkeypatch.setattr(mirrors, "MAX_FILES", 2)
    mirror.update()
    assert "there are 3 files of models; expected at most 2" in delays(folder)[""]
    assert contents(folder).keys() == {"a.tflite", "c.tflite"}


def test_hostile_names_stay_outside(mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path) -> None:
    names = (
        *("../x.tflite", "/etc/x.tflite", "a/../../x.tflite", "a//1/model.tflite", "./x.tflite", "a\0.tflite", ""),
        *("a\n.tflite", "\ud800.tflite", ".unfinished/x.tflite", ".lock", "a/-1/model.tflite", "a/1e1/model.tflite"),
        *(f"{'n' * 255}.tflite", f"a/{'9' * 5000}/model.tflite", "a/\u0661/model.tflite"),
        *("a/0/model.tflite", f"a/{2**63}/model.tflite"),
    )
    put(bucket / "good.tflite", b"1")
    store.extra = [StoredObject(name, 1, 0.0, "1") for name in names]
    mirror.update()
    assert contents(folder) == {"good.tflite": b"1"}
    assert not any(name in request for request in store.requests for name in names if name)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["bucket", "copies"]


def test_file_and_folder_of_one_name(mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path) -> None:
    """An object store may have both."""
    put(bucket / "a.tflite/1/model.tflite", b"1")
    store.extra = [StoredObject("a.tflite", 1, 0.0, "1")]
    for _ in range(4):
        mirror.update()
    assert contents(folder) == {"a.tflite/1/model.tflite": b"1"}
    assert "a.tflite" in delays(folder)


def test_copy_that_was_changed_or_removed_here_is_copied_again(
    mirror: Mirror, store: FaultyStore, bucket: Path, folder: Path
) -> None:
    put(bucket / "a.tflite", b"1")
    put(bucket / "b.tflite", b"1")
    mirror.update()
    os.utime(bucket / "a.tflite", ns=(0, 0))
    mirror.update()
    for at_next_look in (mirror, create(store, folder)):
        status = (folder / "a.tflite").stat()
        (folder / "a.tflite").write_bytes(b"x")
        os.utime(folder / "a.tflite", ns=(status.st_atime_ns, status.st_mtime_ns))
        at_next_look.update()
        assert contents(folder)["a.tflite"] == b"1"
    (folder / "b.tflite").unlink()
    put(folder / "other/1/model.tflite", b"x")
    create(store, folder).update()
    assert contents(folder) == {"a.tflite": b"1", "b.tflite": b"1"}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a.tflite": 1}', b'{"a.tflite": ["1", [1]]}', b"\xff"])
def test_damaged_record_of_versions(store: FaultyStore, bucket: Path, folder: Path, text: bytes) -> None:
    put(bucket / "a.tflite", b"1")
    create(store, folder).update()
    (folder / ".versions.json").write_bytes(text)
    create(store, folder).update()
    assert contents(folder) == {"a.tflite": b"1"}
    assert json.loads((folder / ".versions.json").read_bytes())["a.tflite"]


def test_requests_have_a_time_limit(store: FaultyStore, bucket: Path, folder: Path) -> None:
    put(bucket / "a.tflite", b"1")
    limited = False
    outside: list[str] = []

    @contextmanager
    def limit(seconds: float) -> Iterator[None]:
        nonlocal limited
        limited = seconds > 0
        yield
        limited = False

    def check(kind: str, name: str) -> None:
        if not limited:
            outside.append(kind)

    store.fault = check
    Mirror(lambda: store, URL, folder, BYTES, limit).update()
    assert contents(folder) and not outside


def test_disk_that_is_full(mirror: Mirror, bucket: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket / "a.tflite", b"1")
    mirror.update()
    put(bucket / "a.tflite", b"2")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(mirrors, "replace_file", full)
        mirror.update()
    assert contents(folder) == {"a.tflite": b"1"}
    mirror.update()
    assert contents(folder) == {"a.tflite": b"2"} and not (folder / ".unfinished").exists()


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_with_random_faults(store: FaultyStore, bucket: Path, folder: Path, seed: int) -> None:
    """Workers always see complete files, and everything arrives in the end."""
    choose = random.Random(seed)
    names = ["a.tflite", "a.toml", *(f"b/{n}/{file}" for n in (1, 2, 3) for file in ("model.tflite", "config.toml"))]
    written: dict[str, set[bytes]] = {name: set() for name in names}
    mirror = create(store, folder)

    def maybe_fail(kind: str, name: str) -> None:
        if choose.random() < 0.1:
            raise choose.choice([OSError("lost"), TimeoutError(), ValueError("odd")])
        if choose.random() < 0.1:
            change()
        assert all(value in written[name] for name, value in contents(folder).items())

    def change() -> None:
        name = choose.choice(names)
        if choose.random() < 0.3:
            (bucket / name).unlink(missing_ok=True)
        else:
            content = f"{name} {choose.random()}".encode() * choose.randrange(1, 20)
            written[name].add(content)
            put(bucket / name, content)

    store.fault = maybe_fail
    for _ in range(15):
        change()
        mirror.update()
        if choose.random() < 0.2:
            mirror = create(store, folder)
    store.fault = fail()
    put(bucket / "last.tflite", b"1")  # not empty
    mirror = create(store, folder)
    mirror.update()
    mirror.update()
    assert contents(folder) == contents(bucket) and delays(folder) == {}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("a.tflite", Place("a", 1)),
        ("a.toml", Place("a", 0)),
        ("a.tflite/x.tflite", Place("a.tflite", 1)),
        ("a/config.toml", Place("a", 0)),
        ("a/7/model.tflite", Place("a", 7)),
        ("a/7/config.toml", Place("a", 7)),
        ("a\\b/1\\c.tflite", Place("a\\b", 1)),
        ("a/7/other.tflite", None),
        ("a/x/model.tflite", None),
        ("a", None),
    ],
)
def test_places(path: str, place: Place | None) -> None:
    assert locate(path) == place
