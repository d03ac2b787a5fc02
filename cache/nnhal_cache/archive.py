"""Export and import of entries as a tar file: IDENTITY/TOKEN/about, model and data of each, in this order.

Imported entries are trusted no more than those in the store: the driver accepts only entries sealed with its key.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from nnhal_cache.entry import DATA, MANIFEST, MODEL, EntryInfo, Manifest
from nnhal_cache.errors import CacheError, cache_errors
from nnhal_cache.file_io import write_all
from nnhal_cache.layout import identity_digest
from nnhal_cache.store import MAX_ENTRIES, Store

_NAME = re.compile(r"([0-9a-f]{32})/([0-9a-f]{64})/(about|model|data)", re.ASCII)
_MANIFEST_BYTES = 64 * 1024
_CHUNK = 2**20


class ArchiveError(CacheError):
    """A tar file is not an archive of entries, or is damaged."""


def export_entries(store: Store, path: Path, entries: Iterable[EntryInfo]) -> int:
    """Write entries to a tar file that only its owner may read. Count no hits.

    Returns:
        the number of entries written. Entries that are removed in the meantime are left out.

    Raises:
        CacheError: the tar file or the directory is unusable. The tar file is incomplete then.
    """
    with (
        cache_errors(path, "the archive"),
        open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        return sum(_export(store, tar, entry) for entry in entries)


def import_entries(store: Store, path: Path) -> int:
    """Save the entries of a tar file, in place of existing ones. Their hits start at 0.

    Returns:
        the number of entries.

    Raises:
        ArchiveError: the file is not an archive. The entries before the damaged one are saved.
        CacheError: the file or the directory is unusable, or an entry is too large.
    """
    try:
        with cache_errors(path, "the archive"), path.open("rb") as file, tarfile.open(fileobj=file, mode="r|") as tar:
            return _import_all(store, tar)
    except tarfile.TarError as error:
        raise ArchiveError(f"{path} is not an archive of the cache: {error}") from error


def _export(store: Store, tar: tarfile.TarFile, entry: EntryInfo) -> bool:
    folder = store.layout.generations / entry.generation
    try:
        manifest = (folder / MANIFEST).read_bytes()
        with (folder / MODEL).open("rb") as model, (folder / DATA).open("rb") as data:
            for name, file in ((MANIFEST, io.BytesIO(manifest)), (MODEL, model), (DATA, data)):
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
    for name, manifest_file in members:
        if count == MAX_ENTRIES:
            raise ArchiveError(f"the archive has too many entries; expected at most {MAX_ENTRIES}")
        manifest = _read_manifest(name, manifest_file)
        store.require_fits(manifest.model_bytes + manifest.data_bytes)
        with cache_errors(store.layout.root), store.write(manifest.identity, bytes.fromhex(manifest.token)) as pending:
            for kind, size, descriptor in (
                (MODEL, manifest.model_bytes, pending.model_fd),
                (DATA, manifest.data_bytes, pending.data_fd),
            ):
                member, file = next(members, ("nothing", None))
                if file is None or member != name.replace(MANIFEST, kind):
                    raise ArchiveError(f"the archive has {member} after {name}; expected its {kind}")
                _copy(file, descriptor, size, member)
            pending.commit(manifest.backends, origin=manifest.origin, name=manifest.name)
        count += 1
    return count


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield names and contents. No member is unpacked to a path that the archive names."""
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None or not _NAME.fullmatch(member.name):
            raise ArchiveError(f"the archive has {member.name[:80]!r}, which does not belong to an entry")
        yield member.name, file


def _read_manifest(name: str, file: IO[bytes]) -> Manifest:
    """Return the manifest of an entry, after checking that it belongs to the entry's name."""
    owner, token, kind = name.split("/")
    if kind != MANIFEST:
        raise ArchiveError(f"the archive has {name} without a manifest before it")
    try:
        manifest = Manifest.parse(file.read(_MANIFEST_BYTES))
    except ValueError as error:
        raise ArchiveError(f"{name} is damaged: {error}") from error
    if (identity_digest(manifest.identity), manifest.token) != (owner, token):
        raise ArchiveError(f"{name} describes another entry")
    return manifest


def _copy(file: IO[bytes], descriptor: int, size: int, name: str) -> None:
    """Copy exactly `size` bytes, and raise an error if the file has fewer or more."""
    remaining = size
    while chunk := file.read(min(remaining, _CHUNK)):
        remaining -= len(chunk)
        write_all(descriptor, chunk)
    if remaining or file.read(1):
        raise ArchiveError(f"{name} has the wrong size; expected {size} bytes, as its manifest says")
