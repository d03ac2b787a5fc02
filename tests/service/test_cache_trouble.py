"""Whatever is wrong with the cache directory, preparing succeeds, with a warning that says why nothing was saved."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal.types import CacheState
from tests.cache.full_disk import CANNOT
from tests.cache.test_refusals import NOBODY, needs_root
from tests.service.troubled_cache import TROUBLES, check_not_saved, connected, prepared


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache with an entry."""
    made = tmp_path / "cache"
    with connected(made) as device:
        assert prepared(device, 0).cache.state == CacheState.SAVED
        assert prepared(device, 0).cache.state == CacheState.HIT
    return made


def give_away(root: Path) -> None:
    os.chown(root, NOBODY, NOBODY)


def write_newer(root: Path) -> None:
    (root / "layout").write_text("2\n")


def open_to_all(root: Path) -> None:
    root.chmod(0o777)


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["before", "while it runs"])
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        pytest.param(give_away, "belongs to user 65534, not to user 0", marks=needs_root),
        (write_newer, "written by a newer release: its layout is 2, this one's 1"),
        (open_to_all, "others may write"),
    ],
)
def test_a_directory_that_is_refused(
    trouble: Callable[[Path], None], reason: str, while_it_runs: bool, root: Path
) -> None:
    before = sorted(path for path in root.rglob("*"))
    if not while_it_runs:
        trouble(root)
    with connected(root) as device:
        trouble(root)
        for number in (0, 1):  # one that is there, and a new one
            check_not_saved(device, number, reason)
    assert sorted(path for path in root.rglob("*")) == before


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare to mount a small disk with")
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_disk_in_trouble(trouble: str, tmp_path: Path) -> None:
    """In a mount namespace of its own, so that no mount is left, whatever happens."""
    command = ["unshare", "--mount", sys.executable, "-m", "tests.service.troubled_cache", trouble, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == CANNOT or "unshare failed" in done.stderr:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
