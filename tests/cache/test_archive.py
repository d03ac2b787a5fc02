"""Export and import of entries as a tar file, and invalid archives."""

import io
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from nnhal_cache.archive import ArchiveError, export_entries, import_entries
from nnhal_cache.entry import Manifest
from nnhal_cache.errors import CacheError, TooLargeError
from nnhal_cache.layout import identity_digest
from nnhal_cache.store import Store
from tests.cache.entries import files_below, load, save, token

MANIFEST = Manifest("me", token(1).hex(), "CpuRef 1.0", 5, 4)
NAME = f"{identity_digest('me')}/{token(1).hex()}"

Members = Sequence[tuple[str, bytes]]
GOOD: Members = [(f"{NAME}/about", MANIFEST.pack()), (f"{NAME}/model", b"model"), (f"{NAME}/data", b"data")]


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


def test_exported_entries_can_be_imported(store: Store, other: Store, tmp_path: Path) -> None:
    save(store, 1, b"m" * 100, b"")
    save(store, 2, b"", b"d" * 100, "another client")
    path = tmp_path / "entries.tar"
    path.write_bytes(b"previous content")
    path.chmod(0o600)
    assert export_entries(store, path, store.list()) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {info.hits for info in store.list()} == {0}
    assert import_entries(other, path) == 2
    assert load(other, 1) == (b"m" * 100, b"")
    assert load(other, 2, "another client") == (b"", b"d" * 100)
    assert {info.backends for info in other.list()} == {"CpuRef 1.0"}
    assert import_entries(other, path) == 2
    assert len(other.list()) == 2


def test_a_new_archive_is_private(store: Store, tmp_path: Path) -> None:
    export_entries(store, tmp_path / "entries.tar", [])
    assert stat.S_IMODE((tmp_path / "entries.tar").stat().st_mode) == 0o600


def test_entry_that_is_removed_during_the_export_is_left_out(store: Store, other: Store, tmp_path: Path) -> None:
    save(store, 1)
    save(store, 2)
    entries = store.list()
    store.clear("me", [token(1)])
    assert export_entries(store, tmp_path / "entries.tar", entries) == 1
    assert import_entries(other, tmp_path / "entries.tar") == 1


def test_archive_of_another_tar_program_is_accepted(other: Store, tmp_path: Path) -> None:
    assert import_entries(other, archive(tmp_path / "x.tar", GOOD)) == 1
    assert load(other, 1) == (b"model", b"data")


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("'../x', which does not belong", [("../x", b"")]),
        ("which does not belong", [(f"/{NAME}/about", b"")]),
        ("which does not belong", [(f"{NAME}/../about", b"")]),
        ("which does not belong", [(f"{NAME}/key", b"")]),
        ("which does not belong", [(f"{NAME.upper()}/about", b"")]),
        ("without a manifest", GOOD[1:]),
        ("has nothing after .*; expected its model", GOOD[:1]),
        ("data after .*; expected its model", [GOOD[0], GOOD[2], GOOD[1]]),
        ("has nothing after .*; expected its data", GOOD[:2]),
        ("model has the wrong size; expected 5 bytes", [GOOD[0], (f"{NAME}/model", b"mode"), GOOD[2]]),
        ("model has the wrong size; expected 5 bytes", [GOOD[0], (f"{NAME}/model", b"models"), GOOD[2]]),
        ("about is damaged", [(f"{NAME}/about", b"{"), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", b"[" * 60_000), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", MANIFEST.pack().replace(b": 5", b": -5")), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", MANIFEST.pack().replace(b": 5", b": true")), *GOOD[1:]]),
        ("about is damaged", [(f"{NAME}/about", MANIFEST.pack().replace(b'"me"', b'"\\ud800"')), *GOOD[1:]]),
        ("describes another entry", [(f"{NAME}/about", MANIFEST.pack().replace(b'"me"', b'"you"')), *GOOD[1:]]),
    ],
)
def test_invalid_archive_is_rejected(other: Store, tmp_path: Path, text: str, members: Members) -> None:
    with pytest.raises(ArchiveError, match=text):
        import_entries(other, archive(tmp_path / "x.tar", members))
    assert other.list() == []
    other.sweep()
    assert [name for name in files_below(tmp_path) if name.startswith("other/generations/")] == []


def test_links_are_rejected(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(f"{NAME}/about")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ArchiveError, match="does not belong"):
        import_entries(other, path)


def test_entry_larger_than_the_cache_is_rejected(other: Store, tmp_path: Path) -> None:
    manifest = MANIFEST.pack().replace(b": 5", b": 997")
    with pytest.raises(TooLargeError):
        import_entries(other, archive(tmp_path / "x.tar", [(f"{NAME}/about", manifest), *GOOD[1:]]))


def test_damaged_archive_is_rejected(other: Store, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", GOOD)
    whole = path.read_bytes()
    for length in range(0, 512 * 6, 100):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError):
            import_entries(other, path)
    path.write_bytes(b"no tar" * 1000)
    with pytest.raises(ArchiveError, match="is not an archive of the cache"):
        import_entries(other, path)
    with pytest.raises(CacheError, match="No such file"):
        import_entries(other, tmp_path / "nothing")
