"""Checks of entries that need no driver: files, owners, modes, sizes and seals."""

import hmac
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nnhal_cache.entry import DATA, MANIFEST, MODEL, USAGE, Manifest
from nnhal_cache.errors import cache_errors
from nnhal_cache.layout import identity_digest
from nnhal_cache.seal import SEAL_BYTES, compute_seal
from nnhal_cache.store import Store

_FILES = {MANIFEST, DATA, MODEL, USAGE}
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class EntryProblems:
    """The problems of one entry; none if it is intact. `owner`: the digest of its identity; `token`: in hex."""

    owner: str
    token: str
    problems: tuple[str, ...]


def verify_entries(store: Store, key: bytes | None) -> list[EntryProblems]:
    """Check every entry of a store. Change nothing and count no hits. Without the key, seals are not checked.

    Raises:
        CacheError: the directory is unusable.
    """
    if not store.layout.exists():
        return []
    with cache_errors(store.layout.root):
        links = [Path(link.path) for link in store.layout.links()]
        return [EntryProblems(link.parent.name, link.name, tuple(_find_problems(link, key))) for link in links]


def unknown_files(store: Store) -> list[Path]:
    """Return the files of a cache directory that the cache did not write. It ignores them.

    Raises:
        CacheError: the directory is unusable.
    """
    return list(store.layout.unknown_files())


def _find_problems(link: Path, key: bytes | None) -> Iterator[str]:
    try:
        names = set(os.listdir(link))
    except (FileNotFoundError, NotADirectoryError):
        yield "its folder does not exist"
        return
    yield from _check_modes(link)
    if any(not stat.S_ISREG((link / name).lstat().st_mode) for name in names):
        return  # reading a pipe would block
    if missing := _FILES - names:
        yield f"missing: {', '.join(sorted(missing))}"
        return
    if unknown := names - _FILES:
        yield f"unknown files: {', '.join(sorted(unknown))}"
    yield from _check_manifest(link)
    if key is not None and not _is_sealed(link / MODEL, key, bytes.fromhex(link.name)):
        yield "the seal of the model cache is invalid: the file was changed, or saved with another key"


def _check_modes(link: Path) -> Iterator[str]:
    """Yield the files that other users own or may access."""
    for path in (link.resolve(), *link.iterdir()):
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        expected, mode = 0o700 if is_folder else 0o600, stat.S_IMODE(status.st_mode)
        name = "its folder" if is_folder else path.name
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            yield f"{name} is not a file"
        elif status.st_uid != os.geteuid():
            yield f"{name} belongs to user {status.st_uid}"
        elif mode & ~expected:
            yield f"{name} has mode {mode:o}; expected {expected:o}"


def _check_manifest(link: Path) -> Iterator[str]:
    """Yield the differences between the manifest and the files."""
    try:
        manifest = Manifest.parse((link / MANIFEST).read_bytes())
    except ValueError as error:
        yield f"its manifest is damaged: {error}"
        return
    if identity_digest(manifest.identity) != link.parent.name:
        yield f"its manifest names the identity {manifest.identity!r}, which is not its owner"
    if manifest.token != link.name:
        yield f"its manifest names the token {manifest.token}"
    for name, expected in ((MODEL, manifest.model_bytes), (DATA, manifest.data_bytes)):
        if (size := (link / name).stat().st_size) != expected:
            yield f"{name} has {size} bytes; expected {expected}"


def _is_sealed(path: Path, key: bytes, token: bytes) -> bool:
    body_bytes = path.stat().st_size - SEAL_BYTES
    with path.open("rb") as file:
        seal = compute_seal(key, _chunks(file, body_bytes), token)
        return hmac.compare_digest(seal, file.read(SEAL_BYTES))


def _chunks(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        yield chunk
        size -= len(chunk)
