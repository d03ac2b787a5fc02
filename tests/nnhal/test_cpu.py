"""Number of CPUs: the affinity mask and the quotas of cgroups."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal import cpu


@pytest.fixture(autouse=True)
def _machine_with_eight_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cpu, "_PROCESS_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cpu, "_MOUNT", tmp_path)
    cpu.available_cpus.cache_clear()
    yield
    cpu.available_cpus.cache_clear()


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_without_cgroups_the_affinity_mask_counts() -> None:
    assert cpu.available_cpus() == 8


@pytest.mark.parametrize(("limit", "cpus"), [("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1)])
def test_version_2_quota_is_rounded_up(tmp_path: Path, limit: str, cpus: int) -> None:
    write(tmp_path, cgroup="0::/pod/container")
    write(tmp_path / "pod" / "container", cpu__max=limit)
    assert cpu.available_cpus() == cpus


def test_smallest_quota_of_all_levels_counts(tmp_path: Path) -> None:
    write(tmp_path, cgroup="0::/pod/container", cpu__max="500000 100000")
    write(tmp_path / "pod", cpu__max="300000 100000")
    write(tmp_path / "pod" / "container", cpu__max="400000 100000")
    assert cpu.available_cpus() == 3


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("250000", 3)])
def test_version_1_quota(tmp_path: Path, quota: str, cpus: int) -> None:
    write(tmp_path, cgroup="5:memory:/\n3:cpu,cpuacct:/docker/8f3a")
    write(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert cpu.available_cpus() == cpus


def test_damaged_files_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, cgroup="0::/", cpu__max="many")
    assert cpu.available_cpus() == 8
