"""Pushes that are killed at any step: the folder has the version before with its configuration, or the new ones."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nnhal_service.repository import model_folder
from nnhal_service.repository.model_folder import FoundFile, ModelFolder
from nnhal_service.repository.pushed_files import add_version

_STEPS = ("open", "os.mkdir", "os.rename", "os.fsync")
OLD, NEW = b"old", b"new"


@pytest.fixture(autouse=True)
def parents(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()


def seen(root: Path) -> dict[int, bytes]:
    """Return the versions that a worker sees, with the configuration that each of them has."""
    folder = ModelFolder(root)
    found = folder.scan().get("a")
    return {} if found is None else dict.fromkeys(found.versions, folder.read_text(found.config))


def push(root: Path, version: int, config: bytes | None, killed_at: int) -> bool:
    """Push in a process that ends before a step, and return whether it had more steps than those."""
    pid = os.fork()
    if pid == 0:
        steps = 0

        def count(event: str, arguments: object) -> None:
            nonlocal steps
            steps += event in _STEPS
            if steps > killed_at:
                os._exit(1)

        sys.addaudithook(count)
        add_version(root / "a", [1], version, np.frombuffer(NEW, np.uint8), config)
        os._exit(0)
    return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def cut_short(root: Path, config: bytes | None) -> Iterator[Path]:
    """Yield folders with version 1, to which processes have pushed version 2 that were killed one step later each."""
    for killed_at in range(20):
        folder = root / str(killed_at)
        add_version(folder / "a", [], 1, np.frombuffer(OLD, np.uint8), OLD)
        was_killed = push(folder, 2, config, killed_at)
        yield folder
        if not was_killed:
            return


def test_a_scan_during_a_push_sees_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "0"
    add_version(folder / "a", [], 1, np.frombuffer(OLD, np.uint8), OLD)
    find = model_folder.brought_configs
    versions = iter((2, 3))

    def push_first(parent: Path, found: Iterable[int]) -> list[FoundFile]:
        for version in versions:
            add_version(folder / "a", [1], version, np.frombuffer(NEW, np.uint8), f"{version}".encode())
            break
        return find(parent, found)

    monkeypatch.setattr(model_folder, "brought_configs", push_first)
    assert seen(folder) == dict.fromkeys((1, 2, 3), b"3")


def test_each_state_is_valid(tmp_path: Path) -> None:
    states = [seen(folder) for folder in cut_short(tmp_path, NEW)]
    assert states[0] == {1: OLD} and states[-2:] == [{1: NEW, 2: NEW}] * 2, "the last kill is before the move"
    assert all(state in ({1: OLD}, {1: NEW, 2: NEW}) for state in states)
    assert len(states) > 6


def test_without_a_configuration_the_old_one_stays(tmp_path: Path) -> None:
    states = [seen(folder) for folder in cut_short(tmp_path, None)]
    assert states[-1] == {1: OLD, 2: OLD} and all(set(state.values()) == {OLD} for state in states)


def test_the_next_push_goes_on_from_each_state(tmp_path: Path) -> None:
    for folder in cut_short(tmp_path, NEW):
        before = seen(folder)
        add_version(folder / "a", before, 3, np.frombuffer(NEW, np.uint8), b"newest")
        assert set(seen(folder).values()) == {b"newest"} and set(seen(folder)) == {*before, 3}
        names = sorted(os.listdir(folder / "a"))
        assert names == sorted([*map(str, before), "3", "config.toml"]), "a killed push leaves nothing"
