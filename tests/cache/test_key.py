"""The key file: made once, private, whole."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cache.errors import CacheError, RefusedDirectoryError
from cache.key import make_key, read_key
from cache.store import Store
from tests.cache.entries import save


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    key = make_key(root)
    assert len(key) == 32
    assert make_key(root) == read_key(root / "key") == key
    assert make_key(tmp_path / "other") != key
    assert stat.S_IMODE((root / "key").stat().st_mode) == 0o600
    save(Store(root, 1000), 1)
    assert make_key(root) == key


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from cache.key import make_key; print(make_key(Path(sys.argv[1])).hex())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cache")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({child.communicate()[0] for child in children}) == 1
    assert [child.returncode for child in children] == [0] * 4
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_file()) == ["key", "layout", "lock"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(32))
    path.chmod(mode)
    with pytest.raises(RefusedDirectoryError, match=f"mode {mode:o}.; make it 600"):
        read_key(path)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(size))
    path.chmod(0o600)
    with pytest.raises(CacheError, match="32 bytes"):
        read_key(path)


def test_no_key_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="No such file"):
        read_key(tmp_path / "key")
    with pytest.raises(RefusedDirectoryError, match="not a file"):
        read_key(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_a_key_of_somebody_else_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "cache" / "key"
    make_key(key.parent)
    os.chown(key, 65534, 65534)
    with pytest.raises(RefusedDirectoryError, match="belongs to user 65534"):
        make_key(key.parent)
