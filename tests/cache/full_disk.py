"""Program that uses a store on a full disk: `python -m tests.cache.full_disk DIR`, in a mount namespace of its own.

The exit code is CANNOT if it may not mount.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from nnhal_cache.errors import FullError
from nnhal_cache.store import Store
from tests.cache.entries import load, save

CANNOT = 77


def check(disk: Path) -> None:
    """Check that the full disk is reported, that the old entry stays, and that writing works again with free space."""
    store = Store(disk / "cache", 2**20)
    save(store, 1)
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    with pytest.raises(FullError, match="disk is full"):
        save(store, 1, b"new")
    assert load(store, 1) == (b"model", b"data")
    filler.unlink()
    save(store, 1, b"new")
    assert load(store, 1) == (b"new", b"data")
    assert len(list(store.layout.generations.iterdir())) == 1


if __name__ == "__main__":
    folder = sys.argv[1]
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", folder]
    if subprocess.run(mount, check=False).returncode:
        sys.exit(CANNOT)
    check(Path(folder))
