"""The cache directory: its files and folders, their owner, its version, and the lock that processes share.

    ROOT/layout                          version of this layout
    ROOT/lock                            locked (flock) while entries are published or removed
    ROOT/key                             see key.py
    ROOT/entries/IDENTITY/TOKEN          the entry: a symbolic link to a generation
    ROOT/generations/NUMBER/             model, data, about (JSON), used (one byte for each hit; its time is the last)
    ROOT/aside/TIME-NUMBER/              quarantined entries, with the reason (why)
    ROOT/files/IDENTITY/NAME             files of clients, see files.py

IDENTITY is a digest, TOKEN and NAME are hex, NUMBER is random: no name contains text of a client. An entry is replaced
by one rename of its link, so readers see the old entry or the new one, and never a mixture. A generation without a link
belongs to a writer that is still running (it holds a flock on the directory) or that was killed. Other files are
ignored and stay. A damaged `layout` does not matter to readers, since seals protect what they read; the next writer
replaces it.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnhal_cache.errors import BusyError, CacheError, NewerLayoutError, UnsafeDirectoryError, cache_errors
from nnhal_cache.file_io import replace_private_file, try_lock

VERSION = 1
DEFAULT_BYTES = 4 * 2**30
"""Default size limit of a cache."""
LOCK_S = 10.0
"""Seconds that a process waits for the lock."""
TOKEN_BYTES = 32

_DAMAGED = 0
_RETRY_S = 0.002
_VERSION_BYTES = 64
_OWNER = re.compile("[0-9a-f]{32}")
_TOKEN = re.compile("[0-9a-f]{64}")
_GENERATION = re.compile(r"[0-9a-f]{32}(\.link)?")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class CacheLayout:
    """The paths of one cache directory. Writes nothing until `create` is called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries = root / "entries"
        self.generations = root / "generations"
        self.quarantine = root / "aside"
        self.files = root / "files"

    def entry_link(self, identity: str, token: bytes) -> Path:
        """Return the path of an entry's link.

        Raises:
            CacheError: the token does not have 32 bytes.
        """
        if len(token) != TOKEN_BYTES:
            raise CacheError(f"the token has {len(token)} bytes; expected {TOKEN_BYTES} bytes")
        return self.entries / identity_digest(identity) / token.hex()

    def links(self, identity: str | None = None) -> Iterator[os.DirEntry[str]]:
        """Yield the links of all entries, or of those of an identity. Skip unknown files."""
        for name in sorted(os.listdir(self.entries)) if identity is None else [identity_digest(identity)]:
            folder = self.entries / name
            with contextlib.suppress(FileNotFoundError):  # removed together with its last entry
                if _is_owner(folder):
                    with os.scandir(folder) as files:
                        yield from sorted(filter(_is_link, files), key=lambda link: link.name)

    def unknown_files(self) -> Iterator[Path]:
        """Yield the files and folders that the cache did not write, except those within an entry."""
        if not self.exists():
            return
        with cache_errors(self.root):
            for owner in sorted(self.entries.iterdir()):
                if _is_owner(owner):
                    with os.scandir(owner) as files:
                        yield from sorted(Path(path.path) for path in files if not _is_link(path))
                else:
                    yield owner
            yield from (path for path in sorted(self.generations.iterdir()) if not is_generation(path.name))
            yield from (path for path in sorted(self.quarantine.iterdir()) if not path.is_dir())

    def exists(self) -> bool:
        """Return whether the directory is a cache, after checking that it is safe to use. Write nothing.

        Raises:
            CacheError: the directory is not safe to use.
        """
        with cache_errors(self.root):
            try:
                status = self.root.stat()
            except FileNotFoundError:
                return False
            check_directory(self.root, status)
            if self._read_version() is None:
                return False
            for folder in self._folders:
                with contextlib.suppress(FileNotFoundError):
                    check_directory(folder, folder.stat(follow_symlinks=False))
            return True

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.entries, self.generations, self.quarantine, self.files

    def create(self) -> None:
        """Create the directory, unless it exists. Replace a damaged file `layout`, in one step.

        Raises:
            CacheError: the directory cannot be created, or is not safe to use.
        """
        if self.exists() and self._read_version() == VERSION:
            return
        with cache_errors(self.root):
            self.root.mkdir(0o700, parents=True, exist_ok=True)
            check_directory(self.root, self.root.stat())
            with self.lock():
                if self._read_version() == VERSION:  # another process was faster
                    return
                for folder in self._folders:
                    folder.mkdir(0o700, exist_ok=True)
                path = self.root / "layout"
                if path.is_dir() and not path.is_symlink():  # no file can replace a folder
                    path.rename(self.quarantine / f"{time.time_ns():020d}-layout")
                replace_private_file(path, f"{VERSION}\n".encode())

    def _read_version(self) -> int | None:
        """Return the version in the file `layout`; None if there is no file, and `_DAMAGED` if it has no version.

        Raises:
            CacheError: the version is newer, or the directory belongs to another program.
        """
        try:
            # opening a pipe would block otherwise
            with open(os.open(self.root / "layout", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
                text = file.read(_VERSION_BYTES).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            text = "a folder"
        if text.isdecimal() and int(text) > VERSION:
            raise NewerLayoutError(
                f"the cache {self.root} was written by a newer release: its layout is {text[:20]}; expected {VERSION}"
            )
        if text != str(VERSION) and not all(folder.is_dir() for folder in self._folders):
            raise CacheError(f"the folder {self.root} is not a cache: its file `layout` has {text[:20]!r}")
        return VERSION if text == str(VERSION) else _DAMAGED

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Prevent other processes and threads from publishing and removing entries.

        Raises:
            BusyError: another process has held the lock for more than LOCK_S seconds.
        """
        with cache_errors(self.root):
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + LOCK_S
            while not try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise BusyError(f"the cache {self.root} has been locked by another process for {LOCK_S:g} s")
                time.sleep(_RETRY_S)
            with cache_errors(self.root):
                yield
        finally:
            os.close(descriptor)


def is_generation(name: str) -> bool:
    """Return whether a name is that of a generation, or of a link that a writer has not renamed yet."""
    return _GENERATION.fullmatch(name) is not None


def _is_owner(path: Path) -> bool:
    return _OWNER.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def _is_link(file: os.DirEntry[str]) -> bool:
    return _TOKEN.fullmatch(file.name) is not None and file.is_symlink()


def default_root() -> Path:
    """Return the cache directory of this user: $XDG_CACHE_HOME/nnhal, or ~/.cache/nnhal."""
    return user_directory("XDG_CACHE_HOME", ".cache")


def user_directory(variable: str, *fallback: str) -> Path:
    """Return a directory of this user as the XDG specification defines it, which ignores relative paths.

    Its parent is in an environment variable. If that is not set, the parts of `fallback` lead there from the home.
    """
    parent, home = os.environ.get(variable, ""), os.path.expanduser("~")
    if os.path.isabs(parent):
        return Path(parent, "nnhal")
    # a user without a home gets a directory that cannot be created, and an error that names it
    return Path(home if os.path.isabs(home) else "/", *fallback, "nnhal")


def identity_digest(identity: str) -> str:
    """Return the hex digest that replaces an identity in file names."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def check_directory(path: Path, status: os.stat_result) -> None:
    """Check that other users cannot change a directory.

    Raises:
        UnsafeDirectoryError: they can, or the path is not a directory.
    """
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeDirectoryError(f"the cache {path} is not a directory")
    if status.st_uid != os.geteuid():
        raise UnsafeDirectoryError(f"the cache {path} belongs to user {status.st_uid}; expected user {os.geteuid()}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise UnsafeDirectoryError(f"other users may write to the cache {path} (mode {stat.S_IMODE(status.st_mode):o})")
