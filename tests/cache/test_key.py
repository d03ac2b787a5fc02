"""The key file: created once, private, complete."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nnhal_cache.errors import CacheError, UnsafeDirectoryError
from nnhal_cache.key import load_or_create_key, read_key
from nnhal_cache.store import Store
from tests.cache.entries import save


def test_key_is_created_once_and_private(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    key = load_or_create_key(root)
    assert len(key) == 32
    assert load_or_create_key(root) == read_key(root / "key") == key
    assert load_or_create_key(tmp_path / "other") != key
    assert stat.S_IMODE((root / "key").stat().st_mode) == 0o600
    save(Store(root, 1000), 1)
    assert load_or_create_key(root) == key


def test_concurrent_processes_create_one_key(tmp_path: Path) -> None:
    script = """
import sys; from pathlib import Path; from nnhal_cache.key import load_or_create_key
print(load_or_create_key(Path(sys.argv[1])).hex())"""
    command = [sys.executable, "-c", script, str(tmp_path / "cache")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({child.communicate()[0] for child in children}) == 1
    assert [child.returncode for child in children] == [0] * 4
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_file()) == ["key", "layout", "lock"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_key_that_others_may_access_is_rejected(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(32))
    path.chmod(mode)
    with pytest.raises(UnsafeDirectoryError, match=f"mode {mode:o}.; make it 600"):
        read_key(path)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_key_of_another_size_is_rejected(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(size))
    path.chmod(0o600)
    with pytest.raises(CacheError, match="expected 32 bytes"):
        read_key(path)


def test_missing_key_and_directory_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="No such file"):
        read_key(tmp_path / "key")
    with pytest.raises(UnsafeDirectoryError, match="not a file"):
        read_key(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_key_of_another_user_is_rejected(tmp_path: Path) -> None:
    key = tmp_path / "cache" / "key"
    load_or_create_key(key.parent)
    os.chown(key, 65534, 65534)
    with pytest.raises(UnsafeDirectoryError, match="belongs to user 65534"):
        load_or_create_key(key.parent)
