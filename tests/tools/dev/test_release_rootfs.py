"""The root file system of a release: an archive whose bytes depend on the files only. tests/deploy runs a real one."""

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.dev import container_image, release_rootfs

TIME = 1_700_000_000
FILES = {
    "etc/passwd": 0o644,
    "opt/nnhal/bin/nnhal": 0o755,
    "opt/nnhal/lib/a.py": 0o644,
    "usr/bin/perl": 0o755,
    "var/lib/dpkg/status": 0o600,
    "a.txt": 0o644,
}


def write_tree(root: Path, names: Iterable[str], build_time: int) -> None:
    """Write a file system in this order, with what only one machine has. Half of the files are older than the build."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(FILES[name])
        time = TIME - len(name) if len(name) % 2 else build_time + number
        os.utime(path, (time, time))
    (root / "bin").symlink_to("usr/bin")
    os.link(root / "usr/bin/perl", root / "usr/bin/perl5")
    for name in ("etc/hostname", "run/lock", "tmp/x", "var/log/dpkg.log", "var/cache/apt/x", "dev/null"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{root}")
    (root / "tmp").chmod(0o1777)
    for folder, *_ in os.walk(root):
        os.utime(folder, (build_time, build_time))


def test_bytes_depend_on_the_files_only(tmp_path: Path) -> None:
    archives = []
    for number, names in enumerate((list(FILES), list(reversed(FILES)))):
        write_tree(tmp_path / str(number), names, TIME + 1000 * (number + 1))
        archives.append(tmp_path / f"{number}.tar.gz")
        release_rootfs.pack(tmp_path / str(number), archives[-1], TIME)
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_archive_has_the_files_of_the_image(tmp_path: Path) -> None:
    write_tree(tmp_path / "root", FILES, TIME + 1000)
    release_rootfs.pack(tmp_path / "root", tmp_path / "archive", TIME)
    with tarfile.open(tmp_path / "archive") as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
        tar.extractall(tmp_path / "unpacked", numeric_owner=True, filter="fully_trusted")
    assert {name for name, entry in entries.items() if entry.isreg() and not entry.islnk()} == {*FILES}
    assert {(entry.uname, entry.gname) for entry in entries.values()} == {("", "")}
    assert max(entry.mtime for entry in entries.values()) == TIME
    assert entries["a.txt"].mtime == TIME - len("a.txt")
    assert (entries["bin"].linkname, entries["usr/bin/perl5"].linkname) == ("usr/bin", "usr/bin/perl")
    assert entries["tmp"].mode == 0o1777
    for name, mode in FILES.items():
        assert (tmp_path / "unpacked" / name).read_text() == name
        assert (tmp_path / "unpacked" / name).stat().st_mode & 0o7777 == mode
    for empty in ("dev", "run", "tmp", "var/log", "var/cache/apt"):
        assert list((tmp_path / "unpacked" / empty).iterdir()) == []


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(container_image, "PROGRAMS", ("nothing-of-this-name",))
    monkeypatch.setattr("sys.argv", ["release_rootfs"])
    with pytest.raises(SystemExit):
        release_rootfs.main()
    assert "it needs root, and the packages of Debian for nothing-of-this-name" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_release_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(container_image, "PROGRAMS", ())
    monkeypatch.setattr("sys.argv", ["release_rootfs", str(tmp_path)])
    with pytest.raises(SystemExit):
        release_rootfs.main()
    assert "has no release: run `make release` first" in capsys.readouterr().err
