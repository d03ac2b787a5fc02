"""Entries as a tar file: there and back, and archives that are none."""

import io
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from cache.archive import ArchiveError, export_entries, import_entries
from cache.errors import CacheError, TooLargeError
from cache.generation import About
from cache.layout import digest
from cache.store import Store
from tests.cache.entries import files_below, load, save, token

ABOUT = About("me", token(1).hex(), "CpuRef 1.0", 5, 4)
NAME = f"{digest('me')}/{token(1).hex()}"

Members = Sequence[tuple[str, bytes]]
GOOD: Members = [(f"{NAME}/about", ABOUT.pack()), (f"{NAME}/model", b"model"), (f"{NAME}/data", b"data")]


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "other", 1000)


def archive(path: Path, members: Members) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_there_and_back(store: Store, other: Store, tmp_path: Path) -> None:
    save(store, 1, b"m" * 100, b"")
    save(store, 2, b"", b"d" * 100, "somebody else")
    path = tmp_path / "entries.tar"
    path.write_bytes(b"what was there before")
    path.chmod(0o600)
    assert export_entries(store, path, store.list()) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {info.hits for info in store.list()} == {0}
    assert import_entries(other, path) == 2
    assert load(other, 1) == (b"m" * 100, b"")
    assert load(other, 2, "somebody else") == (b"", b"d" * 100)
    assert {info.backends for info in other.list()} == {"CpuRef 1.0"}
    assert import_entries(other, path) == 2
    assert len(other.list()) == 2


def test_a_new_archive_is_private(store: Store, tmp_path: Path) -> None:
    export_entries(store, tmp_path / "entries.tar", [])
    assert stat.S_IMODE((tmp_path / "entries.tar").stat().st_mode) == 0o600


def test_what_is_removed_meanwhile_is_left_out(store: Store, other: Store, tmp_path: Path) -> None:
    save(store, 1)
    save(store, 2)
    entries = store.list()
    store.clear("me", [token(1)])
    assert export_entries(store, tmp_path / "entries.tar", entries) == 1
    assert import_entries(other, tmp_path / "entries.tar") == 1


def test_a_good_archive_by_hand(other: Store, tmp_path: Path) -> None:
    assert import_entries(other, archive(tmp_path / "x.tar", GOOD)) == 1
    assert load(other, 1) == (b"model", b"data")


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("'../x', which is no part", [("../x", b"")]),
        ("which is no part", [(f"/{NAME}/about", b"")]),
        ("which is no part", [(f"{NAME}/../about", b"")]),
        ("which is no part", [(f"{NAME}/key", b"")]),
        ("which is no part", [(f"{NAME.upper()}/about", b"")]),
        ("without a description", GOOD[1:]),
        ("must have its model, and has nothing", GOOD[:1]),
        ("must have its model, and has", [GOOD[0], GOOD[2], GOOD[1]]),
        ("must have its data, and has nothing", GOOD[:2]),
        ("model does not have the 5 bytes", [GOOD[0], (f"{NAME}/model", b"mode"), GOOD[2]]),
        ("model does not have the 5 bytes", [GOOD[0], (f"{NAME}/model", b"models"), GOOD[2]]),
        ("about is damaged", [(f"{NAME}/about", b"{"), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", b"[" * 60_000), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", ABOUT.pack().replace(b": 5", b": -5")), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", ABOUT.pack().replace(b": 5", b": true")), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", ABOUT.pack().replace(b'"me"', b'"\\ud800"')), *GOOD[1:]]),
        ("describes another entry", [(f"{NAME}/about", ABOUT.pack().replace(b'"me"', b'"you"')), *GOOD[1:]]),
    ],
)
def test_what_is_no_archive(other: Store, tmp_path: Path, text: str, members: Members) -> None:
    with pytest.raises(ArchiveError, match=text):
        import_entries(other, archive(tmp_path / "x.tar", members))
    assert other.list() == []
    other.sweep()
    assert [name for name in files_below(tmp_path) if name.startswith("other/generations/")] == []


def test_links_are_no_entries(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(f"{NAME}/about")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ArchiveError, match="no part"):
        import_entries(other, path)


def test_sizes_are_bounded(other: Store, tmp_path: Path) -> None:
    about = ABOUT.pack().replace(b": 5", b": 997")
    with pytest.raises(TooLargeError):
        import_entries(other, archive(tmp_path / "x.tar", [(f"{NAME}/about", about), *GOOD[1:]]))


def test_damaged_archives_are_refused(other: Store, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", GOOD)
    whole = path.read_bytes()
    for length in range(0, 512 * 6, 100):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError):
            import_entries(other, path)
    path.write_bytes(b"no tar" * 1000)
    with pytest.raises(ArchiveError, match="no archive of the cache"):
        import_entries(other, path)
    with pytest.raises(CacheError, match="No such file"):
        import_entries(other, tmp_path / "nothing")
