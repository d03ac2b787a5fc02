"""File operations: short writes, atomic replacement, locks."""

import os
import stat
from pathlib import Path

import pytest

from nnhal_cache.file_io import replace_private_file, try_lock, write_all


def test_write_all_continues_after_short_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []

    def write_three(descriptor: int, data: bytes) -> int:
        pieces.append(bytes(data[:3]))
        return len(pieces[-1])

    monkeypatch.setattr(os, "write", write_three)
    write_all(-1, b"12345678")
    assert pieces == [b"123", b"456", b"78"]


def test_replaced_file_is_private_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"previous content")
    replace_private_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_only_one_open_file_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    assert try_lock(first) and not try_lock(second)
    os.close(first)
    assert try_lock(second)
    os.close(second)
