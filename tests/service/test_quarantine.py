"""Quarantine file: what it remembers, for how long, and that several processes share it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal_driver.quarantine import HARMLESS
from nnhal_service.quarantine import EXPIRY_S, Crash, QuarantineFile
from tests.concurrency import in_own_process

POISON, OTHER = b"\xab" * 32, b"\xcd" * 32


@pytest.fixture
def clock() -> list[float]:
    """Return the time in a list, to be changed."""
    return [1e9]


@pytest.fixture
def quarantine(tmp_path: Path, clock: list[float]) -> QuarantineFile:
    """Return a quarantine in a folder that does not exist yet."""
    return QuarantineFile(tmp_path / "state", lambda: clock[0])


@pytest.fixture
def crash(clock: list[float]) -> Callable[..., Crash]:
    """Return a function that creates a crash."""
    return lambda backend="CpuAcc", sure=True: Crash(backend, clock[0], "killed by SIGSEGV", sure)


def test_nothing_is_known_at_first(quarantine: QuarantineFile) -> None:
    assert quarantine.verdict(POISON) == HARMLESS and quarantine.crashes() == {}


def test_first_crash_excludes_the_backend(quarantine: QuarantineFile, crash: Callable[..., Crash]) -> None:
    quarantine.record(POISON, crash())
    verdict = quarantine.verdict(POISON)
    assert verdict.excluded == ("CpuAcc",) and not verdict.refusal and "killed by SIGSEGV" in verdict.reason
    assert quarantine.verdict(OTHER) == HARMLESS and quarantine.verdict(b"") == HARMLESS


def test_second_crash_refuses_the_model(quarantine: QuarantineFile, crash: Callable[..., Crash]) -> None:
    quarantine.record(POISON, crash())
    quarantine.record(POISON, crash("CpuRef"))
    assert "crashed twice" in quarantine.verdict(POISON).refusal


def test_one_of_several_suspects_is_refused_later(quarantine: QuarantineFile, crash: Callable[..., Crash]) -> None:
    for number in range(3):
        quarantine.record(POISON, crash(sure=False))
        assert bool(quarantine.verdict(POISON).refusal) == (number == 2)


def test_unknown_backend_excludes_none(quarantine: QuarantineFile, crash: Callable[..., Crash]) -> None:
    quarantine.record(POISON, crash(""))
    assert quarantine.verdict(POISON).excluded == ()


def test_crashes_expire(quarantine: QuarantineFile, crash: Callable[..., Crash], clock: list[float]) -> None:
    quarantine.record(POISON, crash())
    clock[0] += EXPIRY_S + 1
    assert quarantine.verdict(POISON) == HARMLESS
    quarantine.record(POISON, crash())
    assert not quarantine.verdict(POISON).refusal


def test_clear(quarantine: QuarantineFile, crash: Callable[..., Crash]) -> None:
    quarantine.record(POISON, crash())
    quarantine.record(OTHER, crash())
    assert (quarantine.count("CpuAcc"), quarantine.count("CpuRef")) == (2, 0)
    with pytest.raises(ValueError, match="no digest starts with '99'"):
        quarantine.clear(["abab", "99"])
    assert quarantine.clear(["ABAB"]) == 1
    assert quarantine.verdict(POISON) == HARMLESS and quarantine.verdict(OTHER) != HARMLESS
    assert quarantine.clear() == 1 and quarantine.crashes() == {}
    assert quarantine.clear() == 0


def test_other_processes_see_changes(quarantine: QuarantineFile, tmp_path: Path, crash: Callable[..., Crash]) -> None:
    other = QuarantineFile(tmp_path / "state", lambda: 1e9)
    assert other.verdict(POISON) == HARMLESS
    quarantine.record(POISON, crash())
    assert other.verdict(POISON) != HARMLESS
    quarantine.clear()
    assert other.verdict(POISON) == HARMLESS


@in_own_process
def test_concurrent_records_are_all_kept(tmp_path: Path) -> None:
    children = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            QuarantineFile(tmp_path, lambda: 1e9).record(bytes([number]) * 32, Crash("A", 1e9, "x", True))
            os._exit(0)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 8
    assert len(QuarantineFile(tmp_path, lambda: 1e9).crashes()) == 8


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ab": 3}', '{"ab": [{"x": 1}]}', "\x00"])
def test_damaged_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "quarantine.json").write_text(text)
    quarantine = QuarantineFile(tmp_path, lambda: 1e9)
    assert quarantine.verdict(POISON) == HARMLESS
    quarantine.record(POISON, Crash("A", 1e9, "x", True))
    assert quarantine.verdict(POISON) != HARMLESS


def test_folder_is_private(quarantine: QuarantineFile, tmp_path: Path, crash: Callable[..., Crash]) -> None:
    quarantine.record(POISON, crash())
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
