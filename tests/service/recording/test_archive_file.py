"""Files of recordings: limits, files in use, and disks that are full."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nnhal.recording.archive import Archive
from nnhal.recording.members import RecordingError
from nnhal_service.recording.archive_file import ArchiveFile, RecordingFolder
from tests.nnhal.recording.archives import packed_record

HEADER: Mapping[str, Any] = {"version": 1, "identity": "token:a/b", "nnhal": "1", "backends": {}, "started": 1.0}
MIB = 2**20
DAY_S = 86400.0


def folder(root: Path, size: int = MIB, age_s: float = DAY_S) -> RecordingFolder:
    return RecordingFolder(root, size, age_s)


def add(file: ArchiveFile) -> None:
    file.append(packed_record(file.records + 1, [], []))
    file.records += 1


def test_files_are_private_and_named_after_their_identity(tmp_path: Path) -> None:
    file = ArchiveFile(folder(tmp_path / "new"), HEADER)
    add(file)
    file.close()
    assert file.path.parent.name == "token:a%2Fb" and file.path.parent.parent == tmp_path / "new"
    assert file.path.stat().st_mode & 0o777 == 0o600 and file.path.parent.stat().st_mode & 0o777 == 0o700
    assert file.size == file.path.stat().st_size
    assert [record.identity for record in Archive(tmp_path / "new").records] == ["token:a/b"]


def test_oldest_files_go_first_but_none_in_use(tmp_path: Path) -> None:
    closed = [ArchiveFile(folder(tmp_path, age_s=1e18), HEADER) for _ in range(3)]
    for number, file in enumerate(closed):
        file.append(bytes(100_000))
        file.close()
        os.utime(file.path, (1e9 + number, 1e9 + number))
    used = ArchiveFile(folder(tmp_path, age_s=1e18), HEADER)
    os.utime(used.path, (1e8, 1e8))
    folder(tmp_path, 350_000, age_s=1e18).make_room(100_000)
    assert [file.path.exists() for file in (*closed, used)] == [False, True, True, True]
    folder(tmp_path).make_room(0)  # all are older than a day
    assert list(tmp_path.glob("*/*")) == [used.path]
    used.close()
    folder(tmp_path).make_room(0)
    assert not list(tmp_path.glob("*/*"))


def test_folder_without_room_is_an_error_and_stays_within_its_limit(tmp_path: Path) -> None:
    files = [ArchiveFile(folder(tmp_path), HEADER) for _ in range(3)]  # of several processes
    record = packed_record(1, [], []) + bytes(20_480)
    for number in range(100):
        try:
            files[number % 3].append(record)
        except RecordingError as error:
            assert "1048576 bytes (record_bytes), all in use" in str(error)
    total = sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    assert 0.8 * MIB < total <= (1 + 3 / 64) * MIB
    for file in files:
        assert file.size == file.path.stat().st_size
        file.close()


def test_file_ends_after_a_part_of_the_limits(tmp_path: Path) -> None:
    file = ArchiveFile(folder(tmp_path), HEADER)
    assert file.has_room(MIB)  # the first record decides for itself
    add(file)
    assert file.has_room(MIB // 16) and not file.has_room(MIB // 8)
    file.close()
    old = ArchiveFile(folder(tmp_path, age_s=0), HEADER)
    add(old)
    assert not old.has_room(1)
    with pytest.raises(RecordingError, match="have 131073 bytes; at most 131072"):
        old.append(bytes(MIB // 8 + 1))
    old.close()


@pytest.mark.parametrize("accepted", [0, 700])
def test_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: int) -> None:
    file, write = ArchiveFile(folder(tmp_path), HEADER), os.write
    add(file)

    def write_some(descriptor: int, data: bytes) -> int:
        if accepted:
            return write(descriptor, data[:accepted])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left|the disk is full"):
        patch.setattr(os, "write", write_some)
        add(file)
    add(file)
    file.close()
    archive = Archive(tmp_path)
    assert len(archive.records) == 2 and archive.problems == []
