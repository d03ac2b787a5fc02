"""Facts that identify a run: those of a device, and commits of checkouts."""

import subprocess
from pathlib import Path

import pytest

from nnhal.embedded import EmbeddedService
from nnhal.version import __version__
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.run_info import RunInfo, describe_run


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "backend.py").write_text("")
    git(tmp_path, "add", "backend.py")
    git(tmp_path, "commit", "-qm", "test")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_against_a_service(checkout: Path) -> None:
    service = EmbeddedService("--backends", "CpuRef")
    try:
        with Target(service.target) as target:
            info = describe_run(target, "a label")
            (checkout / "backend.py").write_text("changed")
            changed = describe_run(target)
        with Target(service.target, "missing") as missing:
            assert describe_run(missing) == RunInfo(
                service.target, "missing", service_version=__version__, nnhal_commit=info.nnhal_commit,
                commit=changed.commit,
            )  # fmt: skip
    finally:
        service.close()
    commit = git(checkout, "rev-parse", "HEAD")
    assert (info.target, info.device, info.commit) == ("a label", "nnhal", commit)
    assert info.device_version == f"nnhal/{__version__} CpuRef/1"
    assert [backend.id for backend in info.backends] == ["CpuRef"]
    assert (changed.target, changed.commit) == (service.target, f"{commit}-dirty")
    assert info.describe().startswith(f"device nnhal of a label, nnhal/{__version__} CpuRef/1, checked by nnhal ")


def test_folder_that_is_no_checkout_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    service = EmbeddedService("--backends", "CpuRef")
    try:
        with Target(service.target) as target:
            assert describe_run(target).commit == ""
            monkeypatch.setenv("PATH", "/nonexistent")
            assert describe_run(target).nnhal_commit == ""
    finally:
        service.close()


def test_default_device_has_no_name_if_the_service_does_not_list_its_devices() -> None:
    assert RunInfo("localhost:1").describe() == f"default device of localhost:1, checked by nnhal {__version__}"
