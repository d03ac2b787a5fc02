"""Profile of a worker: what it needs with its settings."""

import logging
import os
import sys
import tempfile
from pathlib import Path

import pytest

import nnhal_service
from nnhal_service.sandbox.profile import SandboxProfile, profile_of
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.settings import Settings


def profile(folder: Path, *listen: str, **settings: object) -> SandboxProfile:
    values = {"cache_dir": folder / "cache", "state_dir": folder / "state", **settings}
    return profile_of(Settings.model_validate(values), listen, folder / "temporary")


def test_directories_are_writable_and_created_privately(tmp_path: Path) -> None:
    folders = tuple(tmp_path / name for name in ("state", "cache", "temporary"))
    assert profile(tmp_path).writable == folders
    assert [folder.stat().st_mode & 0o777 for folder in folders[:2]] == [0o700, 0o700]


def test_a_disabled_cache_is_not_created(tmp_path: Path) -> None:
    assert profile(tmp_path, cache_bytes=0).writable == (tmp_path / "state", tmp_path / "temporary")
    assert not (tmp_path / "cache").exists()


def test_a_directory_that_cannot_be_created_is_left_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "cache"
    assert path in profile(tmp_path, cache_dir=path).writable


@pytest.mark.parametrize(
    ("listen", "ports", "privileged"),
    [
        (["127.0.0.1:50051"], (0, 50051), False),
        (["127.0.0.1:0", "[::1]:5000"], (0, 5000), False),
        (["localhost:5000"], (0, 5000), False),
        (["localhost:0"], None, False),
        (["unix:/run/nnhal/socket"], (), False),
        (["127.0.0.1:5000", "unix:/run/nnhal/socket"], (0, 5000), False),
    ],
)
def test_ports(listen: list[str], ports: tuple[int, ...] | None, privileged: bool, tmp_path: Path) -> None:
    result = profile(tmp_path, *listen)
    assert (result.ports, result.privileged_ports, result.outgoing) == (ports, privileged, False)
    assert result.tcp == (not listen[0].startswith("unix"))


def test_folders_of_sockets(tmp_path: Path) -> None:
    assert profile(tmp_path, "unix:/run/nnhal/socket", "127.0.0.1:0").socket_folders == (Path("/run/nnhal"),)
    assert profile(tmp_path, "unix:socket").socket_folders == (Path.cwd(),)


def test_privileged_ports_are_those_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    first.write_text("100\n")
    monkeypatch.setattr("nnhal_service.sandbox.profile._FIRST_UNPRIVILEGED", first)
    assert profile(tmp_path, "127.0.0.1:99").privileged_ports
    assert not profile(tmp_path, "127.0.0.1:100").privileged_ports
    first.unlink()
    assert profile(tmp_path, "127.0.0.1:1023").privileged_ports


def test_names_of_hosts_open_the_network(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nnhal"):
        assert profile(tmp_path, "name.example:5000").outgoing
    (record,) = caplog.records
    assert record.message == "sandbox-open" and "name.example" in str(record.__dict__["nnhal_fields"])


def test_mode_network_opens_the_network(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert profile(tmp_path, "127.0.0.1:5000", sandbox="network").outgoing
    assert not caplog.records


def test_python_is_readable_but_not_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "user"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", ["first", str(home), str(tmp_path), "/", "", "relative", str(home / "site")])
    readable = profile(tmp_path).readable
    assert {Path(sys.prefix), Path(sys.base_prefix), home / "site"} <= set(readable)
    assert Path(next(iter(nnhal_service.__path__))) in readable
    assert not {home, tmp_path, Path("/"), Path.cwd()} & set(readable)


@pytest.mark.skipif(sys.flags.safe_path, reason="Python was started with -P")
def test_the_current_folder_is_not_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "current"), str(tmp_path / "site")])
    readable = profile(tmp_path).readable
    assert tmp_path / "site" in readable and tmp_path / "current" not in readable


def test_plugins_their_libraries_and_the_key_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/vendor/lib::/vendor/lib64")
    result = profile(tmp_path, dynamic_backends_path="/plugins:/more", cache_key_file="/keys/cache")
    expected = {"/plugins", "/more", "/vendor/lib", "/vendor/lib64", "/keys/cache"}
    assert set(map(Path, expected)) <= set(result.readable)


def test_paths_of_the_operator(tmp_path: Path) -> None:
    result = profile(tmp_path, sandbox_paths="/dev/npu0,/var/lib/npu")
    assert {Path("/dev/npu0"), Path("/var/lib/npu"), Path("/dev/null")} <= set(result.devices)


def test_secrets_of_the_system_are_not_readable(tmp_path: Path) -> None:
    result = profile(tmp_path)
    every = {*result.system, *result.readable, *result.writable, *result.devices}
    for path in ("/etc/shadow", "/etc/ssh", "/root", "/home", "/var", "/run", "/dev", "/tmp"):
        assert not every & {Path(path), *Path(path).parents}


def test_locked_memory_needs_its_capability(tmp_path: Path) -> None:
    assert profile(tmp_path, allocator="locked").locks_memory
    assert not profile(tmp_path).locks_memory


def test_without_the_sandbox_nothing_changes(tmp_path: Path) -> None:
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    settings = Settings(sandbox="off", cache_dir=tmp_path / "cache")
    enter_sandbox(settings, tmp_path, lambda: profile_of(settings, settings.listen, tmp_path))
    assert (tempfile.tempdir, os.environ.get("TMPDIR")) == before
    assert not (tmp_path / "cache").exists()
