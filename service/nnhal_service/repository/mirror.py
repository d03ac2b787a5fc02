"""Copies of the models at a URL, in a folder that workers serve as any other.

A copy appears with one rename, and a new version with all its files. The copies stay while the URL cannot be read.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from nnhal_service.log import event
from nnhal_service.peers.cache_share.breaker import CircuitBreaker
from nnhal_service.peers.cache_share.fsspec_store import FsspecStore
from nnhal_service.peers.cache_share.reads import CHUNK_BYTES, describe_error
from nnhal_service.peers.cache_share.stores import StoredObject
from nnhal_service.replaced_files import file_version, replace_file
from nnhal_service.repository.model_folder import ALL_VERSIONS, DELAYS_NAME, Mark, Place, locate

MAX_FILES = 10_000
_LIST_S, _REQUEST_S = 60.0, 30.0
"""Seconds that a listing may take, and the copy of a small file."""
_BYTES_PER_S = 2**17
"""Least speed at which large files are copied."""
_MAX_DELAYS = 200
"""Files that the list of models gives reasons for."""
_VERSIONS_NAME = ".versions.json"
_UNFINISHED = ".unfinished"

TimeLimit = Callable[[float], AbstractContextManager[object]]
"""Raises a TimeoutError in its context after some seconds."""


class NotCopiedError(Exception):
    """Why something is not copied."""


class _Copy(NamedTuple):
    """A copy of a file: its version at the URL, or "" if it must be copied again; and its own numbers."""

    version: str
    mark: Mark


class Mirror:
    """Copies of models. For one thread of one process. Only that may write the folder.

    Args:
        open_store: returns the store, which may fail as any request.
        url: what the log calls it.
        max_bytes: size of all copies together.

    Attributes:
        listing_s: seconds that the last listing has taken.
    """

    def __init__(
        self,
        open_store: Callable[[], FsspecStore],
        url: str,
        folder: Path,
        max_bytes: int,
        time_limit: TimeLimit = nullcontext,
    ) -> None:
        self._open_store = open_store
        self._url = url
        self._folder = folder
        self._max_bytes = max_bytes
        self._time_limit = time_limit
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._delays: dict[str, str] = {}
        self._found: Mapping[str, StoredObject] = {}
        self._copies = dict(self._find_copies())
        self.listing_s = 0.0
        shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)  # of a process that was killed

    def _find_copies(self) -> Iterator[tuple[str, _Copy]]:
        """Yield the copies of the last run. A file that was changed in the meantime is copied again."""
        known: Mapping[str, _Copy] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):  # it is damaged
            text = (self._folder / _VERSIONS_NAME).read_bytes()
            known = {name: _Copy(version, tuple(mark)) for name, (version, mark) in json.loads(text).items()}
        for path in self._folder.rglob("*"):
            name, mark = path.relative_to(self._folder).as_posix(), file_version(path)
            if locate(name) is not None and path.is_file():
                yield name, known[name] if name in known and known[name].mark == mark else _Copy("", mark)

    def update(self) -> None:
        """Copy what is new at the URL, and remove what is gone. What fails is logged, and in the list of models."""
        before, self._delays = self._delays, {}
        if self._attempt("", "", _LIST_S, self._list):
            copies = dict(self._copies)
            self._copy_changed()
            self._remove_vanished()
            if self._copies != copies:
                event("mirror-updated", url=self._url, files=len(self._copies))
            self._write(_VERSIONS_NAME, self._copies)
        for file in self._delays.keys() - before.keys():
            event("mirror-failed", logging.WARNING, url=self._url, file=file or "-", reason=self._delays[file])
        for file in before.keys() - self._delays.keys():
            event("mirror-recovered", url=self._url, file=file or "-")
        shown = islice(self._delays.items(), _MAX_DELAYS)
        self._write(DELAYS_NAME, {file: f"{file or self._url} is not copied: {reason}" for file, reason in shown})

    def _write(self, name: str, values: Mapping[str, object]) -> None:
        """Write values to a file that has others. A disk that is full must not end the process."""
        path, text = self._folder / name, json.dumps(values).encode()
        with suppress(OSError):
            if not path.exists() or path.read_bytes() != text:
                replace_file(path, text)

    def _attempt(self, name: str, version: str, seconds: float, action: Callable[[], None]) -> bool | None:
        """Return whether something succeeds in time; None if that says nothing of the store.

        After several failures it is left alone for a while.
        """
        breaker = self._breakers.setdefault((name, version), CircuitBreaker(lambda _: None))
        if reason := breaker.refusal():
            self._delays[name] = reason
            return None
        try:
            with self._time_limit(seconds):
                action()
        except Exception as error:  # a store may raise anything
            is_answer = isinstance(error, NotCopiedError)
            self._delays[name] = str(error) if is_answer else describe_error(error)
            breaker.fail(self._delays[name])
            return None if is_answer else False
        del self._breakers[name, version]
        return True

    def _list(self) -> None:
        """Find the files of models at the URL."""
        started_at = time.monotonic()
        self._found = {file.name: file for file in self._open_store().list("") if locate(file.name) is not None}
        self.listing_s = time.monotonic() - started_at
        if len(self._found) > MAX_FILES:
            raise NotCopiedError(f"there are {len(self._found)} files of models; expected at most {MAX_FILES}")
        if not self._found and self._copies:
            raise NotCopiedError("there are no models; the copies of those that were there stay")

    def _copy_changed(self) -> None:
        """Copy what is new or changed, until a request fails: the next ones might all wait for a dead store."""
        changed = [name for name in sorted(self._found, key=_order) if not self._is_current(name)]
        for target, names in groupby(changed, self._target):
            files = [self._found[name] for name in names]
            seconds = _REQUEST_S + sum(file.size for file in files) / _BYTES_PER_S
            copy = partial(self._copy, target, files)
            if self._attempt(files[-1].name, files[-1].version, seconds, copy) is False:
                return

    def _is_current(self, name: str) -> bool:
        return self._copies.get(name) == (self._found[name].version, file_version(self._folder / name))

    def _target(self, name: str) -> Path:
        """Return what appears with a file: the folder of a new version, or the file alone."""
        path = self._folder / name
        is_new_version = name.count("/") == 2 and not path.parent.exists()
        return path.parent if is_new_version else path

    def _copy(self, target: Path, files: Sequence[StoredObject]) -> None:
        """Copy the files of what appears at once."""
        names = {file.name for file in files}
        used = sum(copy.mark[2] for name, copy in self._copies.items() if copy.mark and name not in names)
        unfinished = self._folder / _UNFINISHED
        try:
            for file in files:
                path = unfinished / Path(file.name).relative_to(target.relative_to(self._folder).parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                used += self._download(file.name, path, self._max_bytes - used)
            target.parent.mkdir(parents=True, exist_ok=True)
            (unfinished / target.name).replace(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        for file in files:
            self._copies[file.name] = _Copy(file.version, file_version(self._folder / file.name))
        self._write(_VERSIONS_NAME, self._copies)  # now: the process may be replaced before all is copied

    def _download(self, name: str, path: Path, room: int) -> int:
        """Copy a file, which must stay the same meanwhile, and return its size."""
        store = self._open_store()
        before = store.describe(name)
        if before.size > room:
            raise NotCopiedError(f"it has {before.size} bytes; expected at most {room}, what --models-bytes leaves")
        with open(path, "xb") as out:
            while (start := out.tell()) < before.size:
                content = store.read(name, start, min(start + CHUNK_BYTES, before.size))
                if not content or store.describe(name) != before:
                    raise NotCopiedError("it has changed while it was copied")
                out.write(content)
            out.flush()
            os.fsync(out.fileno())
        return before.size

    def _remove_vanished(self) -> None:
        """Remove the copies of what is gone, but none of a model while other files of it are not copied."""
        incomplete = {_model(name) for name in self._found if not self._is_current(name)}
        for name in sorted(self._copies.keys() - self._found.keys(), key=_order, reverse=True):
            if _model(name) not in incomplete:
                path = self._folder / name
                path.unlink(missing_ok=True)
                del self._copies[name]
                for parent in [*path.parents][: name.count("/")]:
                    with suppress(OSError):  # it has other files
                        parent.rmdir()


def _model(file: str) -> str:
    return (locate(file) or Place("", 0)).name


def _order(file: str) -> tuple[bool, str]:
    """Return the place of a file in the order of copies: a configuration precedes what it is for."""
    return (locate(file) or Place("", 0)).version != ALL_VERSIONS, file
