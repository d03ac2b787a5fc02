"""Helpers that write and read entries as a driver does."""

import hashlib
import os
from pathlib import Path

from nnhal_cache.errors import cache_errors
from nnhal_cache.store import Store


def token(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def save(
    store: Store, number: int, model: bytes = b"model", data: bytes = b"data", identity: str = "me", name: str = ""
) -> None:
    with cache_errors(store.layout.root), store.write(identity, token(number)) as pending:
        os.write(pending.model_fd, model)
        os.write(pending.data_fd, data)
        pending.commit("CpuRef 1.0", name=name)


def load(store: Store, number: int, identity: str = "me") -> tuple[bytes, bytes] | None:
    entry = store.open_entry(identity, token(number))
    if entry is None:
        return None
    with entry:
        return read_all(entry.model_fd), read_all(entry.data_fd)


def read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def files_below(path: Path) -> list[str]:
    """Return the names of everything in a folder, except the lock."""
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.name != "lock")


def flip(path: Path, at: int) -> None:
    """Flip the lowest bit of one byte of a file."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
