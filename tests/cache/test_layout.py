"""Directories that cannot or must not be used: each error gives the reason, and reading continues if it can."""

import itertools
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal_cache.errors import BusyError, CacheError, FullError, NewerLayoutError, ReadOnlyError, UnsafeDirectoryError
from nnhal_cache.layout import CacheLayout, default_root
from nnhal_cache.store import Store
from tests.cache.entries import load, save, token
from tests.cache.full_disk import CANNOT
from tests.cache.users import NOBODY, needs_root
from tests.concurrency import in_own_process


@needs_root
def test_directory_of_another_user_is_rejected(store: Store) -> None:
    save(store, 1)
    os.chown(store.layout.root, NOBODY, NOBODY)
    calls: list[Callable[[], object]] = [
        lambda: load(store, 1),
        lambda: save(store, 1),
        lambda: store.clear(None),
        store.list,
        store.sweep,
    ]
    for call in calls:
        with pytest.raises(UnsafeDirectoryError, match=r"belongs to user 65534; expected user 0"):
            call()


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_directory_that_others_may_write_is_rejected(store: Store, mode: int) -> None:
    save(store, 1)
    store.layout.root.chmod(mode)
    with pytest.raises(UnsafeDirectoryError, match=f"other users may write .*mode {mode:o}"):
        load(store, 1)
    store.layout.root.chmod(0o755)
    assert load(store, 1) is not None


def test_empty_directory_that_others_may_write_is_rejected(store: Store) -> None:
    store.layout.root.mkdir()
    store.layout.root.chmod(0o777)
    with pytest.raises(UnsafeDirectoryError):
        save(store, 1)
    assert list(store.layout.root.iterdir()) == []


def test_file_is_rejected(store: Store) -> None:
    store.layout.root.write_text("")
    with pytest.raises(UnsafeDirectoryError, match="not a directory"):
        save(store, 1)


def test_newer_layout_is_rejected(store: Store) -> None:
    save(store, 1)
    (store.layout.root / "layout").write_text("2\n")
    for call in (load, save):
        with pytest.raises(NewerLayoutError, match="newer release: its layout is 2; expected 1"):
            call(store, 1)
    assert (store.layout.root / "layout").read_text() == "2\n"


def replace_layout(root: Path, damage: str) -> None:
    """Replace the file `layout` by something else."""
    path = root / "layout"
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "folder":
        (path / "with").mkdir(parents=True)
    else:
        path.write_text(damage)


DAMAGES = ["1\nx", "", "\0" * 100, "x", "0", "pipe", "folder"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_layout_is_repaired(store: Store, damage: str) -> None:
    save(store, 1)
    replace_layout(store.layout.root, damage)
    assert load(store, 1) == (b"model", b"data")
    save(store, 2)
    assert (store.layout.root / "layout").read_text() == "1\n"
    assert [load(store, number) for number in (1, 2)] == [(b"model", b"data")] * 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_cache_with_a_damaged_layout_is_cleared(store: Store, damage: str) -> None:
    save(store, 1)
    replace_layout(store.layout.root, damage)
    assert store.clear(None) == 1
    assert store.list() == []


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_that_is_cut_short_is_done_by_the_next_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch, damage: str, steps: int
) -> None:
    save(store, 1)
    replace_layout(store.layout.root, damage)
    left = itertools.count(steps, -1)

    def kill_after(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if next(left) <= 0:
                raise KeyboardInterrupt
            return function(*arguments)

        return call

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for function in (os.fsync, os.rename, os.replace):
            patch.setattr(os, function.__name__, kill_after(function))
        save(store, 2)
    assert load(store, 1) in ((b"model", b"data"), None)
    save(store, 2)
    assert [load(store, number) for number in (1, 2)] == [(b"model", b"data")] * 2


def test_layout_of_another_program_stays(store: Store) -> None:
    store.layout.root.mkdir()
    (store.layout.root / "layout").write_text("rows and columns")
    for call in (load, save):
        with pytest.raises(CacheError, match="is not a cache: its file `layout` has 'rows and columns'"):
            call(store, 1)
    assert [path.name for path in store.layout.root.iterdir()] == ["layout"]


def open_to_all(folder: Path) -> None:
    """Let other users enter a test's folder, whose parents pytest makes private."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and each.stat().st_mode & 0o077 == 0:
            each.chmod(0o755)


@needs_root
@in_own_process
def test_read_only_directory_can_be_read(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    store = Store(tmp_path / "cache", 2**20)
    save(store, 1)
    for path in [store.layout.root, *store.layout.root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(0o500 if path.is_dir() else 0o400)
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    assert load(store, 1) == (b"model", b"data")
    with pytest.raises(ReadOnlyError, match="is not accessible to this user"):
        save(store, 2)
    with pytest.raises(ReadOnlyError):
        store.quarantine("me", token(1), "test")
    with pytest.raises(ReadOnlyError):
        save(Store(store.layout.root / "new", 100), 1)


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare to mount a small disk with")
def test_full_disk_is_reported_and_the_old_entry_stays(tmp_path: Path) -> None:
    """Runs in a mount namespace of its own, so that no mount is left behind."""
    command = ["unshare", "--mount", sys.executable, "-m", "tests.cache.full_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT or "unshare failed" in done.stderr:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@in_own_process
def test_limit_on_file_sizes_is_reported(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 2**22)
    save(store, 1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    with pytest.raises(FullError, match="the size limit of this process"):
        save(store, 1, b"new")
    assert load(store, 1) == (b"model", b"data")


def test_lock_times_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, 1)
    monkeypatch.setattr("nnhal_cache.layout.LOCK_S", 0.05)
    with store.layout.lock(), pytest.raises(BusyError, match="locked by another process"):
        save(store, 2)
    save(store, 2)


def test_default_directory_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_root() == Path("/x/nnhal")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says: ignore it
    monkeypatch.setenv("HOME", "/h")
    assert default_root() == Path("/h/.cache/nnhal")
    monkeypatch.setenv("HOME", "nonsense")
    assert default_root() == Path("/.cache/nnhal")


def test_new_directory_is_private_despite_the_umask(store: Store) -> None:
    before = os.umask(0)
    try:
        save(store, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.layout.root.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["entries", "generations", "quarantine", "files"])
def test_folders_that_others_can_write_to_are_not_used(tmp_path: Path, name: str) -> None:
    layout = CacheLayout(tmp_path / "cache")
    layout.create()
    folder = getattr(layout, name)
    folder.chmod(0o777)
    for use in (layout.exists, layout.create):
        with pytest.raises(CacheError, match=f"other users may write to the cache {folder} "):
            use()
    folder.chmod(0o700)
    assert layout.exists()
