"""The store: cache entries by (client identity, token), shared by any number of processes.

An entry is absent or whole, whatever is killed when. Entries that were used least recently go when there are too many
bytes. The store judges no contents: that is the driver's part, which has the key and the token.
"""

import contextlib
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from types import TracebackType

from cache.errors import CacheError, TooLargeError, explaining
from cache.generation import ABOUT, DATA, MODEL, USED, WHY, About, EntryInfo, Placed, count_hit, info_of, placed
from cache.layout import Layout, digest, is_generation, sync_directory, try_lock, write_private

__all__ = ["CacheError", "Counters", "Entry", "EntryInfo", "PendingEntry", "Store"]

ENTRIES = 10_000
"""At most so many, however small."""
ASIDE = 8
"""Bad entries that are kept for a look: the newest, while they have less than the same share of the bytes."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What one process did with a store, for one identity or for all."""

    hits: int = 0
    misses: int = 0
    saves: int = 0
    evictions: int = 0
    set_aside: int = 0


@dataclass(slots=True)
class Entry:
    """Open files of an entry, for reading. They stay readable when the entry is replaced or removed. Close it.

    Attributes:
        generation: tells this entry from one that replaces it; see Store.set_aside.
    """

    model_fd: int
    data_fd: int
    generation: str
    _closed: bool = field(default=False, repr=False)

    def close(self) -> None:
        """Closes the descriptors; a second call does nothing."""
        if not self._closed:
            self._closed = True
            os.close(self.model_fd)
            os.close(self.data_fd)

    def __enter__(self) -> "Entry":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PendingEntry:
    """New files of an entry, for reading and writing. Without `commit` they go when the context ends."""

    def __init__(self, store: "Store", identity: str, token: bytes, folder: Path, lock: int) -> None:
        self._store = store
        self._identity = identity
        self._token = token
        self.folder = folder
        self._open = [lock]
        self.model_fd = self.data_fd = -1
        self.committed = False

    def open(self) -> None:
        """Makes the files."""
        self.model_fd, self.data_fd = (self._create(name) for name in (MODEL, DATA))

    def _create(self, name: str) -> int:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._open.append(descriptor)
        return descriptor

    def commit(self, backends: str = "") -> None:
        """Makes the files the entry, in place of the one before, and makes room for it.

        Args:
            backends: what lists show, e.g. "CpuAcc 1.0, CpuRef 1.0".

        Raises:
            CacheError: it cannot be; the entry is as it was.
        """
        with explaining(self._store.layout.root):
            sizes = [os.fstat(fd).st_size for fd in (self.model_fd, self.data_fd)]
            self._store.hold(sum(sizes))
            about = About(self._identity, self._token.hex(), backends, *sizes)
            _write_all(self._create(ABOUT), about.pack())
            self._create(USED)
            for descriptor in self._open[1:]:
                os.fsync(descriptor)
            sync_directory(self.folder)
            self._store.publish(self._identity, self._token, self)

    def __enter__(self) -> "PendingEntry":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.committed:
            shutil.rmtree(self.folder, ignore_errors=True)  # a sweep finds what is left
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


class Store:
    """A cache directory. Nothing is touched until something is asked of it.

    Every method raises CacheError, with a text for people, where the directory cannot be used.

    Args:
        root: the directory; made when the first entry is written.
        max_bytes: of all entries; 0: the cache is off: nothing is found and nothing can be written.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.layout = Layout(root)
        self.max_bytes = max_bytes
        self._counters: dict[str, Counters] = {}
        self._counting = threading.Lock()

    def counters(self, identity: str | None = None) -> Counters:
        """What this process has done so far for an identity, or for all."""
        with self._counting:
            if identity is not None:
                return self._counters.get(digest(identity), Counters())
            every = map(astuple, self._counters.values())
            return Counters(*map(sum, zip(*every, strict=True)))

    def entry(self, identity: str, token: bytes, *, used: bool = True) -> Entry | None:
        """The entry's files; None: there is none.

        Args:
            used: counts a hit or a miss; the entry was used last now.
        """
        link = self.layout.entry(identity, token)
        found = self._open(link, used=used) if self._there() else None
        if used:
            self._count(link.parent.name, "misses" if found is None else "hits")
        return found

    def unused(self, entry: EntryInfo) -> Entry | None:
        """The files of an entry that was listed, without counting that as a use; None: they are gone."""
        with explaining(self.layout.root):
            return _open_files(self.layout.generations / entry.generation, entry.generation, used=False)

    def write(self, identity: str, token: bytes) -> PendingEntry:
        """Begins a new entry; use it as a context manager."""
        self.layout.entry(identity, token)
        self.hold_on()
        self.layout.make()
        folder = self.layout.generations / secrets.token_hex(16)
        with self.layout.locked():  # a sweep must not find the folder before this process holds it
            folder.mkdir(0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try_lock(lock)
        pending = PendingEntry(self, identity, token, folder, lock)
        with contextlib.ExitStack() as stack, explaining(self.layout.root):
            stack.push(pending)
            pending.open()
            stack.pop_all()
        return pending

    def set_aside(self, identity: str, token: bytes, reason: str, generation: str = "") -> bool:
        """Takes a bad entry out of use and keeps it for a look; the next look-up is a miss.

        Args:
            generation: of the entry that was found bad: one that has replaced it meanwhile stays.

        Returns:
            Whether there was such an entry.
        """
        link = self.layout.entry(identity, token)
        if not self._there():
            return False
        with self.layout.locked():
            current = _generation(link)
            if current is None or generation not in ("", current):
                return False
            folder = self.layout.generations / current
            link.unlink()
            why = {"identity": identity, "token": token.hex(), "reason": reason, "at": time.time()}
            with contextlib.suppress(FileNotFoundError):
                write_private(folder / WHY, json.dumps(why).encode() + b"\n")
                folder.rename(self.layout.aside / f"{time.time_ns():020d}-{current}")
            self._bound_aside()
        self._count(link.parent.name, "set_aside")
        return True

    def list(self, identity: str | None = None) -> list[EntryInfo]:
        """The entries of an identity, or of all; the most recently used first."""
        if not self._there():
            return []
        with explaining(self.layout.root):
            found = list(self._infos(identity))
        return sorted(found, key=lambda info: info.last_used_at, reverse=True)

    def clear(self, identity: str | None, tokens: Iterable[bytes] = ()) -> int:
        """Removes entries.

        Args:
            identity: whose; None: everybody's.
            tokens: which; none: all.

        Returns:
            How many there were.
        """
        if not self._there():
            return 0
        wanted = {token.hex() for token in tokens}
        with self.layout.locked():
            links = [link for link in self._links(identity) if not wanted or link.name in wanted]
            for link in links:
                self._remove(link)
        return len(links)

    def sweep(self) -> int:
        """Removes what killed writers left behind; gives how much it was. Each write does the same."""
        if not self._there():
            return 0
        with self.layout.locked():
            return self._sweep()

    def hold_on(self) -> None:
        """Refuses to go on where the cache is off.

        Raises:
            CacheError: it is.
        """
        if not self.max_bytes:
            raise CacheError("the cache is off")

    def hold(self, size: int) -> None:
        """Refuses an entry that is too large for this cache.

        Raises:
            TooLargeError: it is.
        """
        if size > self.max_bytes:
            raise TooLargeError(f"the entry has {size} bytes; the cache may have {self.max_bytes}")

    def publish(self, identity: str, token: bytes, pending: PendingEntry) -> None:
        """Makes a complete generation the entry. For PendingEntry alone."""
        link, folder = self.layout.entry(identity, token), pending.folder
        new = folder.with_name(folder.name + ".link")
        with self.layout.locked():
            link.parent.mkdir(0o700, exist_ok=True)
            new.symlink_to(Path("../..", folder.parent.name, folder.name))
            new.replace(link)
            pending.committed = True
            self._count(link.parent.name, "saves")
            sync_directory(link.parent)
            self._make_room(folder.name)
            self._sweep()  # the generation before this one, too

    def _there(self) -> bool:
        return self.max_bytes > 0 and self.layout.exists()

    def _open(self, link: Path, *, used: bool) -> Entry | None:
        generation = _generation(link)
        while generation is not None:
            with explaining(self.layout.root):
                found = _open_files(self.layout.generations / generation, generation, used=used)
            if found is not None:
                return found
            # replaced or removed between the two steps, or damaged
            before, generation = generation, _generation(link)
            if generation == before:
                return None
        return None

    def _links(self, identity: str | None) -> Iterator[Path]:
        return (Path(link.path) for link in self.layout.links(None if identity is None else digest(identity)))

    def _infos(self, identity: str | None) -> Iterator[EntryInfo]:
        for link in self._links(identity):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile, or not whole
                yield info_of(link, self.layout.generations)

    def _remove(self, link: Path) -> None:
        """Under the lock. A generation that a kill spares is found by the next sweep."""
        generation = _generation(link)
        link.unlink()
        if generation is not None:
            shutil.rmtree(self.layout.generations / generation, ignore_errors=True)
        with contextlib.suppress(OSError):  # others of that identity are there
            link.parent.rmdir()

    def _bound_aside(self) -> None:
        """Removes the oldest of what was set aside. Under the lock."""
        room = self.max_bytes // ASIDE
        for count, path in enumerate(sorted(filter(Path.is_dir, self.layout.aside.iterdir()), reverse=True)):
            room -= sum(file.stat().st_size for file in path.iterdir())
            if room < 0 or count >= ASIDE:
                shutil.rmtree(path)

    def _make_room(self, newest: str) -> None:
        """Removes what was used least recently until the rest fits. Under the lock."""
        entries = sorted(self._placed(), key=lambda entry: (entry.generation != newest, -entry.used_at))
        room = self.max_bytes
        for count, entry in enumerate(entries):
            room -= entry.size
            if (room < 0 or count >= ENTRIES) and entry.generation != newest:
                link = Path(entry.link)
                self._remove(link)
                self._count(link.parent.name, "evictions")

    def _placed(self) -> Iterator[Placed]:
        """All entries that are whole. Under the lock."""
        for link in self.layout.links():
            with contextlib.suppress(FileNotFoundError):  # it has lost a file; the next one of its token replaces it
                yield placed(link.path, str(self.layout.generations))

    def _sweep(self) -> int:
        """Under the lock, so that no link changes meanwhile."""
        strays = set(filter(is_generation, os.listdir(self.layout.generations)))
        strays -= {os.path.basename(os.readlink(link)) for link in self.layout.links()}
        return sum(_remove_stray(self.layout.generations / name) for name in strays)

    def _count(self, owner: str, name: str) -> None:
        with self._counting:
            now = self._counters.get(owner, Counters())
            self._counters[owner] = replace(now, **{name: getattr(now, name) + 1})


def _open_files(path: Path, generation: str, *, used: bool) -> Entry | None:
    """Opens both files of a generation, and counts a hit if they are to be used; None: one is not there."""
    with contextlib.ExitStack() as opened:

        def opening(name: str | Path, flags: int, folder: int | None = None) -> int:
            descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=folder)
            opened.callback(os.close, descriptor)
            return descriptor

        try:
            folder = opening(path, os.O_DIRECTORY)
            model, data = (opening(name, os.O_NOFOLLOW, folder) for name in (MODEL, DATA))
        except FileNotFoundError:
            return None
        if used:
            count_hit(folder)
        opened.pop_all()
    os.close(folder)
    return Entry(model, data, generation)


def _generation(link: Path) -> str | None:
    """The generation that an entry's link names; None: there is no entry."""
    try:
        return Path(os.readlink(link)).name
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _remove_stray(path: Path) -> bool:
    """Removes a folder that no living writer holds."""
    if path.is_symlink():
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
