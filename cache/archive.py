"""Entries as one tar file, to be taken to another machine: IDENTITY/TOKEN/about, model and data of each, in this order.

What is imported is trusted no more than what lies in the store: the driver believes what its key has sealed.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from cache.errors import CacheError, explaining
from cache.generation import ABOUT, DATA, MODEL, About, EntryInfo
from cache.layout import digest
from cache.store import ENTRIES, Store

_NAME = re.compile(r"([0-9a-f]{32})/([0-9a-f]{64})/(about|model|data)", re.ASCII)
_ABOUT_BYTES = 64 * 1024
_CHUNK = 2**20


class ArchiveError(CacheError):
    """A tar file is no archive of entries, or a damaged one."""


def export_entries(store: Store, path: Path, entries: Iterable[EntryInfo]) -> int:
    """Writes entries to a tar file that its owner alone may read. Counts no hits.

    Returns:
        How many; one that is removed meanwhile is left out.

    Raises:
        CacheError: the tar file or the directory cannot be used; what the tar file holds then is of no use.
    """
    with (
        explaining(path),
        open(path, "wb", opener=_private) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        return sum(_export(store, tar, entry) for entry in entries)


def import_entries(store: Store, path: Path) -> int:
    """Saves the entries of a tar file, in place of those that are there. Their hits begin anew.

    Returns:
        How many.

    Raises:
        ArchiveError: the file is no archive; the entries before the bad one are saved.
        CacheError: the file or the directory cannot be used, or an entry is too large.
    """
    try:
        with explaining(path), path.open("rb") as file, tarfile.open(fileobj=file, mode="r|") as tar:
            return _import_all(store, tar)
    except tarfile.TarError as error:
        raise ArchiveError(f"{path} is no archive of the cache: {error}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _export(store: Store, tar: tarfile.TarFile, entry: EntryInfo) -> bool:
    folder = store.layout.generations / entry.generation
    try:
        about = (folder / ABOUT).read_bytes()
        with (folder / MODEL).open("rb") as model, (folder / DATA).open("rb") as data:
            for name, file in ((ABOUT, io.BytesIO(about)), (MODEL, model), (DATA, data)):
                _add(tar, f"{entry.owner}/{entry.token.hex()}/{name}", file)
    except FileNotFoundError:
        return False
    return True


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = file.seek(0, os.SEEK_END)
    member.mode = 0o600
    file.seek(0)
    tar.addfile(member, file)


def _import_all(store: Store, tar: tarfile.TarFile) -> int:
    count = 0
    members = _members(tar)
    for name, about_file in members:
        if count == ENTRIES:
            raise ArchiveError(f"the archive has more than {ENTRIES} entries")
        about = _about(name, about_file)
        store.hold(about.model_bytes + about.data_bytes)
        with explaining(store.layout.root), store.write(about.identity, bytes.fromhex(about.token)) as pending:
            for kind, size, descriptor in (
                (MODEL, about.model_bytes, pending.model_fd),
                (DATA, about.data_bytes, pending.data_fd),
            ):
                found, file = next(members, ("nothing", None))
                if file is None or found != name.replace(ABOUT, kind):
                    raise ArchiveError(f"after {name} the archive must have its {kind}, and has {found}")
                _copy(file, descriptor, size, found)
            pending.commit(about.backends)
        count += 1
    return count


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents. Nothing is ever unpacked to a path that an archive names."""
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None or not _NAME.fullmatch(member.name):
            raise ArchiveError(f"the archive has {member.name[:80]!r}, which is no part of an entry")
        yield member.name, file


def _about(name: str, file: IO[bytes]) -> About:
    """The description of an entry, which must be that of its name."""
    owner, token, kind = name.split("/")
    if kind != ABOUT:
        raise ArchiveError(f"the archive has {name} without a description before it")
    try:
        about = About.parse(file.read(_ABOUT_BYTES))
    except ValueError as error:
        raise ArchiveError(f"{name} is damaged: {error}") from error
    if (digest(about.identity), about.token) != (owner, token):
        raise ArchiveError(f"{name} describes another entry")
    return about


def _copy(file: IO[bytes], descriptor: int, size: int, name: str) -> None:
    """Exactly `size` bytes, and no more."""
    left = size
    while chunk := file.read(min(left, _CHUNK)):
        left -= len(chunk)
        while chunk:
            chunk = chunk[os.write(descriptor, chunk) :]
    if left or file.read(1):
        raise ArchiveError(f"{name} does not have the {size} bytes that its description says")
