"""Kinds of file systems, and which of them clients may share files of."""

import fcntl
import os
from pathlib import Path

import pytest

from nnhal.errors import HalError
from nnhal_service.sessions import file_systems
from nnhal_service.sessions.file_systems import LOCAL, file_system
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.shared_table import SharedTable


def mount_of(descriptor: int) -> str:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("mnt_id"))


def test_files_of_the_kernel_are_of_their_file_system() -> None:
    for path, kind in (("/proc/self/environ", "proc"), ("/proc/sys/kernel/hostname", "proc"), ("/sys/kernel", "sysfs")):
        if os.path.exists(path):
            descriptor = os.open(path, os.O_RDONLY)
            assert file_system(descriptor) == kind
            os.close(descriptor)


def test_memfds_are_memory() -> None:
    descriptor = os.memfd_create("cache")
    assert file_system(descriptor) in LOCAL
    os.close(descriptor)


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse", "nfs4", "cifs", "9p", "proc", "sysfs", "debugfs", "autofs", ""])
def test_files_whose_reads_may_block_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "cache").touch()
    descriptor = os.open(tmp_path / "cache", os.O_RDWR)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "mounts")
    others = "1 0 0:1 / / rw - ext4 /dev/vda rw\n"
    mount = f"{mount_of(descriptor)} 1 0:2 / /a rw shared:1 - {kind} - rw\n" if kind else ""
    (tmp_path / "mounts").write_text(others + mount)
    table = SharedTable(Limits())
    expected = pytest.raises(HalError, match=f"number 7 is not a regular file of a local .*'{kind or 'another'}'")
    with monkeypatch.context() as patch, expected:
        patch.setattr(os, "fstat", refuse)  # may block, too
        table.add_file(7, descriptor)
    os.close(descriptor)


def refuse(*_: object) -> None:
    raise OSError
