"""Directories that cannot or must not be used: each with an error that says why, and reading goes on where it can."""

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

from cache.errors import BusyError, CacheError, FullError, NewerLayoutError, ReadOnlyError, RefusedDirectoryError
from cache.layout import default_root
from cache.store import Store
from tests.cache.entries import load, save, token
from tests.cache.full_disk import CANNOT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away and mounting need root")
NOBODY = 65534


def in_child(action: Callable[[], None], user: int | None = None) -> int:
    """Runs something in a forked child, maybe as another user; gives its exit code: 0 all is well, 1 it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user is not None:
                os.setgid(user)
                os.setuid(user)
            action()
            code = 0
        except BaseException as error:
            print(type(error), error, file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_root
def test_a_directory_of_somebody_else_is_refused(store: Store) -> None:
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
        with pytest.raises(RefusedDirectoryError, match=r"belongs to user 65534, not to user 0"):
            call()


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_a_directory_that_others_may_write_is_refused(store: Store, mode: int) -> None:
    save(store, 1)
    store.layout.root.chmod(mode)
    with pytest.raises(RefusedDirectoryError, match=f"others may write .*mode {mode:o}"):
        load(store, 1)
    store.layout.root.chmod(0o755)
    assert load(store, 1) is not None


def test_an_empty_directory_that_others_may_write_is_refused(store: Store) -> None:
    store.layout.root.mkdir()
    store.layout.root.chmod(0o777)
    with pytest.raises(RefusedDirectoryError):
        save(store, 1)
    assert list(store.layout.root.iterdir()) == []


def test_a_file_is_no_directory(store: Store) -> None:
    store.layout.root.write_text("")
    with pytest.raises(RefusedDirectoryError, match="not a directory"):
        save(store, 1)


def test_a_newer_layout_is_left_alone(store: Store) -> None:
    save(store, 1)
    (store.layout.root / "layout").write_text("2\n")
    for call in (load, save):
        with pytest.raises(NewerLayoutError, match="newer release: its layout is 2, this one's 1"):
            call(store, 1)
    (store.layout.root / "layout").write_text("x")
    with pytest.raises(CacheError, match="damaged file `layout`"):
        load(store, 1)


def open_to_all(folder: Path) -> None:
    """Lets other users come to a test's folder: pytest shuts its own folders above it."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and each.stat().st_mode & 0o077 == 0:
            each.chmod(0o755)


@needs_root
def test_a_directory_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    store = Store(tmp_path / "cache", 2**20)
    save(store, 1)
    for path in [store.layout.root, *store.layout.root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(0o500 if path.is_dir() else 0o400)

    def look() -> None:
        assert load(store, 1) == (b"model", b"data")
        with pytest.raises(ReadOnlyError, match="may not be used by this user"):
            save(store, 2)
        with pytest.raises(ReadOnlyError):
            store.set_aside("me", token(1), "test")
        with pytest.raises(ReadOnlyError):
            save(Store(store.layout.root / "new", 100), 1)

    assert in_child(look, NOBODY) == 0


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare to mount a small disk with")
def test_a_full_disk_is_named_and_the_old_entry_stays(tmp_path: Path) -> None:
    """In a mount namespace of its own, so that no mount is left, whatever happens."""
    command = ["unshare", "--mount", sys.executable, "-m", "tests.cache.full_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT or "unshare failed" in done.stderr:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_a_limit_on_file_sizes_is_named(store: Store) -> None:
    save(store, 1)

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        with pytest.raises(FullError, match="size that this process may write"):
            save(store, 1, b"new")

    assert in_child(write) == 0
    assert load(store, 1) == (b"model", b"data")


def test_waiting_for_the_lock_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, 1)
    monkeypatch.setattr("cache.layout.LOCK_S", 0.05)
    with store.layout.locked(), pytest.raises(BusyError, match="locked by another process"):
        save(store, 2)
    save(store, 2)


def test_the_default_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_root() == Path("/x/nnhal")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says: ignore it
    monkeypatch.setenv("HOME", "/h")
    assert default_root() == Path("/h/.cache/nnhal")
    monkeypatch.setenv("HOME", "nonsense")
    assert default_root() == Path("/.cache/nnhal")


def test_the_directory_that_is_made_is_private_whatever_the_umask(store: Store) -> None:
    before = os.umask(0)
    try:
        save(store, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.layout.root.stat().st_mode) == 0o700
