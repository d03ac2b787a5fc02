"""The store: cache entries by (client identity, token), shared by any number of processes.

An entry is either absent or complete, also after a process was killed. The least recently used entries are evicted when
the store exceeds its size limit. The store does not validate contents: the driver does, with the key and the token.
"""

import contextlib
import json
import os
import secrets
import shutil
import stat
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from nnhal_cache.entry import (
    DATA,
    MANIFEST,
    MODEL,
    REASON,
    USAGE,
    EntryInfo,
    EntryStat,
    Manifest,
    count_hit,
    read_info,
    stat_entry,
)
from nnhal_cache.errors import CacheError, TooLargeError, cache_errors
from nnhal_cache.file_io import replace_private_file, sync_directory, try_lock, write_all
from nnhal_cache.layout import CacheLayout, identity_digest, is_generation

MAX_ENTRIES = 10_000
"""Maximum number of entries, whatever their size."""
MAX_QUARANTINED = 8
"""Maximum number of invalid entries that are kept for inspection.

The newest are kept, within 1 / MAX_QUARANTINED of the store's size limit.
"""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of one process's operations on a store, for one identity or for all."""

    hits: int = 0
    misses: int = 0
    saves: int = 0
    evictions: int = 0
    set_aside: int = 0


@dataclass(slots=True)
class Entry:
    """Open files of an entry, for reading. They stay readable when the entry is replaced or removed.

    `generation` distinguishes this entry from one that replaces it; see `Store.quarantine`.
    """

    model_fd: int
    data_fd: int
    generation: str
    _closed: bool = field(default=False, repr=False)

    def close(self) -> None:
        """Close the descriptors. A second call does nothing."""
        if not self._closed:
            self._closed = True
            os.close(self.model_fd)
            os.close(self.data_fd)

    def __enter__(self) -> "Entry":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PendingEntry:
    """New files of an entry, for reading and writing. They are deleted at the end of the context, unless committed."""

    def __init__(self, store: "Store", identity: str, token: bytes, folder: Path, lock: int) -> None:
        self._store = store
        self._identity = identity
        self._token = token
        self.folder = folder
        self._open = [lock]
        self.model_fd = self.data_fd = -1
        self.committed = False

    def create_files(self) -> None:
        """Create the files."""
        self.model_fd, self.data_fd = (self._create(name) for name in (MODEL, DATA))

    def _create(self, name: str) -> int:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._open.append(descriptor)
        return descriptor

    def commit(self, backends: str = "", quota: int | None = None, origin: str = "", name: str = "") -> None:
        """Publish the files as the entry, in place of the previous one, and evict entries to make room.

        Args:
            backends: text for lists, for example "CpuAcc 1.0, CpuRef 1.0".
            quota: bytes that all entries of the identity may have. Its least recently used ones are evicted.
            origin: text for lists: where the entry comes from, if it was not saved here.
            name: text for lists: name and version of a model of the repository.

        Raises:
            CacheError: this failed. The previous entry is unchanged.
        """
        with cache_errors(self._store.layout.root):
            sizes = [os.fstat(fd).st_size for fd in (self.model_fd, self.data_fd)]
            self._store.require_fits(sum(sizes))
            if quota is not None and sum(sizes) > quota:
                raise TooLargeError(f"the entry has {sum(sizes)} bytes; the identity has a quota of {quota} bytes")
            manifest = Manifest(self._identity, self._token.hex(), backends, sizes[0], sizes[1], origin, name)
            write_all(self._create(MANIFEST), manifest.pack())
            self._create(USAGE)
            for descriptor in self._open[1:]:
                os.fsync(descriptor)
            sync_directory(self.folder)
            self._store.publish(self._identity, self._token, self, quota)

    def __enter__(self) -> "PendingEntry":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.committed:
            shutil.rmtree(self.folder, ignore_errors=True)  # a sweep removes the rest
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


class Store:
    """A cache directory. Creating a store does not access it.

    Every method raises CacheError if the directory is unusable.

    Args:
        root: the directory. The first write creates it.
        max_bytes: size limit of all entries. 0 turns the cache off: every lookup misses and every write fails.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.layout = CacheLayout(root)
        self.max_bytes = max_bytes
        self._counters: dict[str, Counter[str]] = defaultdict(Counter)
        self._counting = threading.Lock()

    def counters(self, identity: str | None = None) -> Counters:
        """Return the counts of this process for an identity, or for all."""
        with self._counting:
            if identity is not None:
                return Counters(**self._counters.get(identity_digest(identity), Counter()))
            return Counters(**sum(self._counters.values(), Counter()))

    def open_entry(self, identity: str, token: bytes, *, used: bool = True) -> Entry | None:
        """Return the open files of an entry, or None if it does not exist.

        `used`: whether to count a hit or a miss, and to note the time of the use.
        """
        link = self.layout.entry_link(identity, token)
        entry = self._open(link, used=used) if self._is_usable() else None
        if used:
            self._count(link.parent.name, "misses" if entry is None else "hits")
        return entry

    def has_entry(self, identity: str, token: bytes) -> bool:
        """Return whether an entry exists. It may be damaged."""
        link = self.layout.entry_link(identity, token)
        return self._is_usable() and _generation(link) is not None

    def open_listed(self, entry: EntryInfo) -> Entry | None:
        """Return the open files of a listed entry, or None if it was removed. Count no hit."""
        with cache_errors(self.layout.root):
            return _open_files(self.layout.generations / entry.generation, entry.generation, used=False)

    def write(self, identity: str, token: bytes) -> PendingEntry:
        """Return a new entry. Use it as a context manager."""
        self.layout.entry_link(identity, token)
        self.require_enabled()
        self.layout.create()
        folder = self.layout.generations / secrets.token_hex(16)
        with self.layout.lock():  # so that no sweep finds the folder before it is locked
            folder.mkdir(0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try_lock(lock)
        pending = PendingEntry(self, identity, token, folder, lock)
        with contextlib.ExitStack() as stack, cache_errors(self.layout.root):
            stack.push(pending)
            pending.create_files()
            stack.pop_all()
        return pending

    def quarantine(self, identity: str, token: bytes, reason: str, generation: str = "") -> bool:
        """Move an invalid entry to the quarantine, so that the next lookup is a miss. Return whether it existed.

        `generation`: the one that is invalid. An entry that has replaced it in the meantime stays.
        """
        link = self.layout.entry_link(identity, token)
        if not self._is_usable():
            return False
        with self.layout.lock():
            current = _generation(link)
            if current is None or generation not in ("", current):
                return False
            folder = self.layout.generations / current
            link.unlink()
            report = {"identity": identity, "token": token.hex(), "reason": reason, "at": time.time()}
            with contextlib.suppress(FileNotFoundError):
                replace_private_file(folder / REASON, json.dumps(report).encode() + b"\n")
                folder.rename(self.layout.quarantine / f"{time.time_ns():020d}-{current}")
            self._bound_quarantine()
        self._count(link.parent.name, "set_aside")
        return True

    def list(self, identity: str | None = None) -> list[EntryInfo]:
        """Return the entries of an identity, or of all, most recently used first."""
        if not self._is_usable():
            return []
        infos = []
        with cache_errors(self.layout.root):
            for link in self.layout.links(identity):
                with contextlib.suppress(FileNotFoundError):  # removed in the meantime, or incomplete
                    infos.append(read_info(Path(link.path), self.layout.generations))
        return sorted(infos, key=lambda info: info.last_used_at, reverse=True)

    def clear(self, identity: str | None, tokens: Iterable[bytes] = ()) -> int:
        """Remove the entries of an identity (None: of all) with these tokens (empty: all). Return their number."""
        if not self._is_usable():
            return 0
        names = {token.hex() for token in tokens}
        with self.layout.lock():
            links = [link for link in self.layout.links(identity) if not names or link.name in names]
            for link in links:
                self._remove(Path(link.path))
        return len(links)

    def usage(self) -> tuple[int, int]:
        """Return the number of complete entries and their size in bytes. It reads the status of each."""
        if not self._is_usable():
            return 0, 0
        with self.layout.lock():
            sizes = [entry.size for entry in self._stats()]
        return len(sizes), sum(sizes)

    def sweep(self) -> int:
        """Remove what killed writers left, and return the number of generations. Each write does the same."""
        if not self._is_usable():
            return 0
        with self.layout.lock():
            return self._sweep()

    def require_enabled(self) -> None:
        """Raise CacheError if the cache is off."""
        if not self.max_bytes:
            raise CacheError("the cache is off")

    def require_fits(self, size: int) -> None:
        """Raise TooLargeError if an entry of this size does not fit into the cache."""
        if size > self.max_bytes:
            raise TooLargeError(f"the entry has {size} bytes; the cache has a limit of {self.max_bytes} bytes")

    def publish(self, identity: str, token: bytes, pending: PendingEntry, quota: int | None) -> None:
        """Make a complete generation the entry, within the quota of its owner. Only PendingEntry calls this."""
        link, folder = self.layout.entry_link(identity, token), pending.folder
        new = folder.with_name(folder.name + ".link")
        with self.layout.lock():
            link.parent.mkdir(0o700, exist_ok=True)
            new.symlink_to(Path("../..", folder.parent.name, folder.name))
            new.replace(link)
            pending.committed = True
            self._count(link.parent.name, "saves")
            sync_directory(link.parent)
            if quota is not None:
                self._evict(folder.name, quota, identity)
            self._evict(folder.name, self.max_bytes)
            self._sweep()  # also removes the generation that this one replaces

    def _is_usable(self) -> bool:
        return self.max_bytes > 0 and self.layout.exists()

    def _open(self, link: Path, *, used: bool) -> Entry | None:
        generation = _generation(link)
        while generation is not None:
            with cache_errors(self.layout.root):
                entry = _open_files(self.layout.generations / generation, generation, used=used)
            if entry is not None:
                return entry
            # replaced or removed between the two steps, or damaged
            previous, generation = generation, _generation(link)
            if generation == previous:
                return None
        return None

    def _remove(self, link: Path) -> None:
        """Remove an entry. The caller holds the lock. If the process is killed, a later sweep removes the rest."""
        generation = _generation(link)
        link.unlink()
        if generation is not None:
            shutil.rmtree(self.layout.generations / generation, ignore_errors=True)
        with contextlib.suppress(OSError):  # the identity has other entries
            link.parent.rmdir()

    def _bound_quarantine(self) -> None:
        """Remove the oldest entries of the quarantine. The caller holds the lock."""
        room = self.max_bytes // MAX_QUARANTINED
        for count, path in enumerate(sorted(filter(Path.is_dir, self.layout.quarantine.iterdir()), reverse=True)):
            room -= sum(file.stat().st_size for file in path.iterdir())
            if room < 0 or count >= MAX_QUARANTINED:
                shutil.rmtree(path)

    def _evict(self, newest: str, room: int, identity: str | None = None) -> None:
        """Evict the least recently used entries of an identity or of all, but not `newest`, until `room` bytes suffice.

        The caller holds the lock.
        """
        entries = sorted(self._stats(identity), key=lambda entry: (entry.generation != newest, -entry.last_used_ns))
        for count, entry in enumerate(entries):
            room -= entry.size
            if (room < 0 or count >= MAX_ENTRIES) and entry.generation != newest:
                link = Path(entry.link)
                self._remove(link)
                self._count(link.parent.name, "evictions")

    def _stats(self, identity: str | None = None) -> Iterator[EntryStat]:
        """Yield the complete entries of an identity, or of all. The caller holds the lock."""
        for link in self.layout.links(identity):
            with contextlib.suppress(FileNotFoundError):  # incomplete; the next entry with this token replaces it
                yield stat_entry(link.path, str(self.layout.generations))

    def _sweep(self) -> int:
        """Remove generations without a link. The caller holds the lock, so that no link changes."""
        strays = set(filter(is_generation, os.listdir(self.layout.generations)))
        strays -= {os.path.basename(os.readlink(link)) for link in self.layout.links()}
        return sum(_remove_stray(self.layout.generations / name) for name in strays)

    def _count(self, owner: str, name: str) -> None:
        with self._counting:
            self._counters[owner][name] += 1


def _open_files(path: Path, generation: str, *, used: bool) -> Entry | None:
    """Open both files of a generation, and count a hit if `used`. Return None if one is not a regular file."""
    with contextlib.ExitStack() as stack:

        def open_file(name: str | Path, flags: int, folder: int | None = None) -> int:
            descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=folder)
            stack.callback(os.close, descriptor)
            return descriptor

        try:
            folder = open_file(path, os.O_DIRECTORY)
            # opening a pipe would block otherwise
            model, data = (open_file(name, os.O_NOFOLLOW | os.O_NONBLOCK, folder) for name in (MODEL, DATA))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not all(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in (model, data)):
            return None
        if used:
            count_hit(folder)
        stack.pop_all()
    os.close(folder)
    return Entry(model, data, generation)


def _generation(link: Path) -> str | None:
    """Return the generation that an entry's link names, or None if there is no entry."""
    try:
        return Path(os.readlink(link)).name
    except FileNotFoundError:
        return None


def _remove_stray(path: Path) -> bool:
    """Remove a generation, unless a running writer has locked it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return True
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(folder):
            return False
        shutil.rmtree(path)
        return True
    finally:
        os.close(folder)
