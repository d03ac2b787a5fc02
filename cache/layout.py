"""The cache directory: what lies where, whose it is, its version, and the lock that processes share.

    ROOT/layout                          version of this layout
    ROOT/lock                            held (flock) while entries are published or removed
    ROOT/key                             see key.py
    ROOT/entries/IDENTITY/TOKEN          a symbolic link to a generation: what makes it an entry
    ROOT/generations/NUMBER/             model, data, about (JSON), used (one byte for each hit; its time is the last)
    ROOT/aside/TIME-NUMBER/              bad entries, with the reason (why)
    ROOT/files/IDENTITY/NAME             files of clients, see files.py

IDENTITY is a digest, TOKEN and NAME are hex, NUMBER is random: no name is made of a client's text. Replacing a link is
one rename, so an entry is the old one or the new one, never a mixture. A generation that no link names is a writer's
that is at work (it holds a flock on the directory) or was killed. What somebody else puts there stays, and is no entry.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cache.errors import BusyError, CacheError, NewerLayoutError, RefusedDirectoryError, explaining

VERSION = 1
DEFAULT_BYTES = 4 * 2**30
"""What a cache may have where nobody says otherwise."""
LOCK_S = 10.0
"""Seconds that a process waits for the lock."""
TOKEN_BYTES = 32

_RETRY_S = 0.002
_VERSION_BYTES = 64
_OWNER = re.compile("[0-9a-f]{32}")
_TOKEN = re.compile("[0-9a-f]{64}")
_GENERATION = re.compile(r"[0-9a-f]{32}(\.link)?")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Layout:
    """The paths of one cache directory. Makes nothing until `make` is called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries = root / "entries"
        self.generations = root / "generations"
        self.aside = root / "aside"
        self.files = root / "files"

    def entry(self, identity: str, token: bytes) -> Path:
        """Where the link of an entry is.

        Raises:
            CacheError: the token does not have 32 bytes.
        """
        if len(token) != TOKEN_BYTES:
            raise CacheError(f"a token has {TOKEN_BYTES} bytes, this one {len(token)}")
        return self.entries / digest(identity) / token.hex()

    def links(self, owner: str | None = None) -> Iterator[os.DirEntry[str]]:
        """The links of all entries, or of those of one owner (`digest`). What else lies there is passed over."""
        for name in sorted(os.listdir(self.entries)) if owner is None else [owner]:
            folder = self.entries / name
            with contextlib.suppress(FileNotFoundError):  # it is gone, with the last entry in it
                if _is_owner(folder):
                    with os.scandir(folder) as found:
                        yield from sorted(filter(_is_link, found), key=lambda link: link.name)

    def strangers(self) -> Iterator[Path]:
        """What lies among entries, or what was set aside, and is none of this cache's."""
        for owner in sorted(self.entries.iterdir()):
            if _is_owner(owner):
                with os.scandir(owner) as found:
                    yield from sorted(Path(path.path) for path in found if not _is_link(path))
            else:
                yield owner
        yield from (path for path in sorted(self.generations.iterdir()) if not is_generation(path.name))
        yield from (path for path in sorted(self.aside.iterdir()) if not path.is_dir())

    def exists(self) -> bool:
        """Whether there is a cache here; checks that it may be used. Writes nothing.

        Raises:
            CacheError: it may not.
        """
        with explaining(self.root):
            try:
                found = self.root.stat()
            except FileNotFoundError:
                return False
            check_directory(self.root, found)
            return self._versioned()

    def make(self) -> None:
        """Makes what is missing.

        Raises:
            CacheError: the directory cannot be made or may not be used.
        """
        if self.exists():
            return
        with explaining(self.root):
            self.root.mkdir(0o700, parents=True, exist_ok=True)
            check_directory(self.root, self.root.stat())
            with self.locked():
                if self._versioned():  # somebody else was first
                    return
                for folder in (self.entries, self.generations, self.aside, self.files):
                    folder.mkdir(0o700, exist_ok=True)
                write_private(self.root / "layout", f"{VERSION}\n".encode())

    def _versioned(self) -> bool:
        try:
            with open(self.root / "layout", "rb", buffering=0) as file:
                text = file.read(_VERSION_BYTES).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return False
        if not text.isdecimal():
            raise CacheError(f"the cache {self.root} has a damaged file `layout`: {text[:20]!r} is no version")
        if int(text) != VERSION:
            raise NewerLayoutError(
                f"the cache {self.root} was written by a newer release: its layout is {text[:20]}, this one's {VERSION}"
            )
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes and threads from publishing and removing.

        Raises:
            BusyError: somebody else holds the lock for longer than LOCK_S.
        """
        with explaining(self.root):
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = time.monotonic() + LOCK_S
            while not try_lock(descriptor):
                if time.monotonic() > end:
                    raise BusyError(f"the cache {self.root} has been locked by another process for {LOCK_S:g} s")
                time.sleep(_RETRY_S)
            with explaining(self.root):
                yield
        finally:
            os.close(descriptor)


def is_generation(name: str) -> bool:
    """Whether this is what a writer calls its folder, or the link to it that is not yet in its place."""
    return _GENERATION.fullmatch(name) is not None


def _is_owner(path: Path) -> bool:
    return _OWNER.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def _is_link(found: os.DirEntry[str]) -> bool:
    return _TOKEN.fullmatch(found.name) is not None and found.is_symlink()


def default_root() -> Path:
    """The cache directory of this user: $XDG_CACHE_HOME/nnhal, or ~/.cache/nnhal."""
    given, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(given):
        return Path(given, "nnhal")
    # a user without a home gets a directory that cannot be made, and is told so
    return Path(home if os.path.isabs(home) else "/", ".cache", "nnhal")


def digest(identity: str) -> str:
    """What stands for an identity in names."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def check_directory(path: Path, found: os.stat_result) -> None:
    """Refuses a directory that others could change.

    Raises:
        RefusedDirectoryError: it can.
    """
    if not stat.S_ISDIR(found.st_mode):
        raise RefusedDirectoryError(f"the cache {path} is not a directory")
    if found.st_uid != os.geteuid():
        raise RefusedDirectoryError(f"the cache {path} belongs to user {found.st_uid}, not to user {os.geteuid()}")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise RefusedDirectoryError(f"others may write to the cache {path} (mode {stat.S_IMODE(found.st_mode):o})")


def try_lock(descriptor: int) -> bool:
    """Takes the lock on an open file, unless somebody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_private(path: Path, data: bytes) -> None:
    """Writes a file whole: what was there before stays until the new one is on disk. Under the lock only."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
