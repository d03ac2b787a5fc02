"""Unusable cache directories: preparations succeed, with a warning that says why nothing was saved."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal.types import CacheState
from tests.cache.full_disk import CANNOT
from tests.cache.users import NOBODY, needs_root
from tests.service.model_cache.unusable_caches import CASES, check_not_saved, connect, prepare


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a cache with an entry."""
    folder = tmp_path / "cache"
    with connect(folder) as device:
        assert prepare(device, 0).cache.state == CacheState.SAVED
        assert prepare(device, 0).cache.state == CacheState.HIT
    return folder


def change_owner(root: Path) -> None:
    os.chown(root, NOBODY, NOBODY)


def write_newer(root: Path) -> None:
    (root / "layout").write_text("2\n")


def make_writable_for_all(root: Path) -> None:
    root.chmod(0o777)


@pytest.mark.parametrize("while_running", [False, True], ids=["before", "while running"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(change_owner, "belongs to user 65534; expected user 0", marks=needs_root),
        (write_newer, "written by a newer release: its layout is 2; expected 1"),
        (make_writable_for_all, "other users may write"),
    ],
)
def test_unusable_directory(damage: Callable[[Path], None], reason: str, while_running: bool, root: Path) -> None:
    before = sorted(path for path in root.rglob("*"))
    if not while_running:
        damage(root)
    with connect(root) as device:
        damage(root)
        for number in (0, 1):  # an existing entry and a new one
            check_not_saved(device, number, reason)
    assert sorted(path for path in root.rglob("*")) == before


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare to mount a small disk with")
@pytest.mark.parametrize("case", CASES)
def test_unusable_disk(case: str, tmp_path: Path) -> None:
    """The program runs in a mount namespace of its own, so that no mount remains."""
    command = [
        "unshare",
        "--mount",
        sys.executable,
        "-m",
        "tests.service.model_cache.unusable_caches",
        case,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == CANNOT or "unshare failed" in done.stderr:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
