"""Checks entries as far as can be done without the driver: files, owners, modes, sizes, and the seal."""

import hmac
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cache.errors import explaining
from cache.generation import ABOUT, DATA, MODEL, USED, About
from cache.layout import digest
from cache.store import Store

SEAL_BYTES = 32
"""HMAC-SHA-256, by the key, of all bytes before it and the token: the end of a model cache (driver/caching)."""

_FILES = {ABOUT, DATA, MODEL, USED}
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one entry; nothing where it is as it should be.

    Attributes:
        owner: the digest of its identity.
        token: in hex.
    """

    owner: str
    token: str
    problems: tuple[str, ...]


def verify(store: Store, key: bytes | None) -> list[Verdict]:
    """Checks every entry of a store. Changes nothing, and counts no hits.

    Args:
        key: that the entries were sealed with; None: seals are not checked.

    Raises:
        CacheError: the directory cannot be used.
    """
    if not store.layout.exists():
        return []
    with explaining(store.layout.root):
        links = [Path(link.path) for link in store.layout.links()]
        return [Verdict(link.parent.name, link.name, tuple(_problems(link, key))) for link in links]


def strangers(store: Store) -> list[Path]:
    """What lies among the entries and is none. It harms nobody, and is left alone.

    Raises:
        CacheError: the directory cannot be used.
    """
    if not store.layout.exists():
        return []
    with explaining(store.layout.root):
        return list(store.layout.strangers())


def _problems(link: Path, key: bytes | None) -> Iterator[str]:
    try:
        names = set(os.listdir(link))
    except (FileNotFoundError, NotADirectoryError):
        yield "its folder is not there"
        return
    yield from _strangers(link)
    if missing := _FILES - names:
        yield f"missing: {', '.join(sorted(missing))}"
        return
    if unknown := names - _FILES:
        yield f"does not belong here: {', '.join(sorted(unknown))}"
    yield from _misdescribed(link)
    if key is not None and not _is_sealed(link / MODEL, key, bytes.fromhex(link.name)):
        yield "the seal of the model cache is not right: it was changed, or saved with another key"


def _strangers(link: Path) -> Iterator[str]:
    """What others own or may use."""
    for path in (link.resolve(), *link.iterdir()):
        found = path.lstat()
        folder = stat.S_ISDIR(found.st_mode)
        wanted, mode = 0o700 if folder else 0o600, stat.S_IMODE(found.st_mode)
        name = "its folder" if folder else path.name
        if not (folder or stat.S_ISREG(found.st_mode)):
            yield f"{name} is not a file"
        elif found.st_uid != os.geteuid():
            yield f"{name} belongs to user {found.st_uid}"
        elif mode & ~wanted:
            yield f"{name} has mode {mode:o}, more than {wanted:o}"


def _misdescribed(link: Path) -> Iterator[str]:
    """Where the description and the files disagree."""
    try:
        about = About.parse((link / ABOUT).read_bytes())
    except ValueError as error:
        yield f"its description is damaged: {error}"
        return
    if digest(about.identity) != link.parent.name:
        yield f"it is described as that of {about.identity!r}, whose it is not"
    if about.token != link.name:
        yield f"it is described as the entry of token {about.token}"
    for name, wanted in ((MODEL, about.model_bytes), (DATA, about.data_bytes)):
        if (size := (link / name).stat().st_size) != wanted:
            yield f"{name} has {size} bytes, not {wanted}"


def _is_sealed(path: Path, key: bytes, token: bytes) -> bool:
    left = path.stat().st_size - SEAL_BYTES
    seal = hmac.new(key, digestmod="sha256")
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):
            seal.update(chunk)
            left -= len(chunk)
        seal.update(token)
        return left == 0 and hmac.compare_digest(seal.digest(), file.read(SEAL_BYTES))
