"""Named files: private to an identity, limited in number, and their names."""

import os
import stat
from pathlib import Path

import pytest

from nnhal_cache.errors import CacheError
from nnhal_cache.files import BadNameError, NamedFiles, TooManyFilesError
from nnhal_cache.store import Store


@pytest.fixture
def files(store: Store) -> NamedFiles:
    return NamedFiles(store)


def put(files: NamedFiles, name: str, data: bytes, identity: str = "me", limit: int = 10) -> None:
    descriptor = files.open(identity, name, os.O_RDWR, limit)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def get(files: NamedFiles, name: str, identity: str = "me") -> bytes:
    descriptor = files.open(identity, name, os.O_RDONLY, 10)
    try:
        return os.read(descriptor, 1000)
    finally:
        os.close(descriptor)


def test_file_persists_and_belongs_to_an_identity(files: NamedFiles, store: Store) -> None:
    put(files, "model", b"mine")
    assert get(files, "model") == b"mine"
    assert get(NamedFiles(store), "model") == b"mine"
    assert get(files, "model", "you") == b""
    assert list(files.list("me")) == [("model", 4)]
    assert (files.total_bytes("me"), files.total_bytes("unknown")) == (4, 0)
    assert files.delete("me", "model")
    assert not files.delete("me", "model")
    assert list(files.list("me")) == []


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a" * 65, "é", "a\n", "a b", "a\0"])
def test_invalid_names_are_rejected(files: NamedFiles, name: str) -> None:
    with pytest.raises(BadNameError):
        put(files, name, b"")
    with pytest.raises(BadNameError):
        files.delete("me", name)


@pytest.mark.parametrize("name", [".", "..", "...", "-", "A" * 64, "a.b_c-d", "key"])
def test_unusual_names_cannot_leave_the_folder(files: NamedFiles, store: Store, name: str) -> None:
    put(files, name, b"x")
    assert list(files.list("me")) == [(name, 1)]
    (path,) = (path for path in store.layout.files.rglob("*") if path.is_file())
    assert path.name == name.encode().hex()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_number_of_files_is_limited(files: NamedFiles) -> None:
    put(files, "a", b"", limit=2)
    put(files, "b", b"", limit=2)
    with pytest.raises(TooManyFilesError, match="there are 2 cache files; expected at most 2"):
        put(files, "c", b"", limit=2)
    put(files, "a", b"again", limit=2)
    put(files, "c", b"", "you", limit=2)
    files.delete("me", "a")
    put(files, "c", b"", limit=2)


def test_files_survive_clear_and_sweep(files: NamedFiles, store: Store) -> None:
    put(files, "a", b"mine")
    store.clear(None)
    store.sweep()
    assert get(files, "a") == b"mine"


def test_cache_that_is_off_rejects_files(tmp_path: Path) -> None:
    files = NamedFiles(Store(tmp_path / "cache", 0))
    for call in (lambda: put(files, "a", b""), lambda: files.delete("me", "a")):
        with pytest.raises(CacheError, match="off"):
            call()
