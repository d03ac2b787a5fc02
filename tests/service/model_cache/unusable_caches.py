"""Program that runs a service whose cache is on a full or read-only disk.

Run it in a mount namespace, because it mounts a disk:

python -m tests.service.model_cache.unusable_caches full|read-only DIR. The exit code is CANNOT if it may not mount.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import CacheState
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.cache.full_disk import CANNOT
from tests.service.model_cache.saving_model import SIZE, model, weights


@contextmanager
def connect(root: Path) -> Iterator[nnhal.Device]:
    """Yield a device of a service with this cache directory."""
    settings = Settings(listen=("127.0.0.1:0",), cache_dir=root, backends=("CpuRef",))
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        yield device


def prepare(device: nnhal.Device, number: int) -> nnhal.PreparedModel:
    """Prepare a model with the cache, and check that it computes the right values."""
    prepared = device.prepare(model(number), cache=True).result(60)
    np.testing.assert_array_equal(prepared.execute([np.zeros(SIZE, np.float32)])[0], weights(number))
    return prepared


def check_not_saved(device: nnhal.Device, number: int, reason: str) -> None:
    """Check that a model is prepared and not saved, with a reason."""
    prepared = prepare(device, number)
    assert prepared.cache.state == CacheState.NOT_SAVED and reason in prepared.cache.reason, prepared.cache
    assert [(warning.code, warning.text) for warning in prepared.warnings] == [
        ("cache-not-saved", prepared.cache.reason)
    ]


def full(disk: Path) -> None:
    """Check that saved entries are still found, and that saving works again when there is space."""
    with connect(disk / "cache") as device:
        assert prepare(device, 0).cache.state == CacheState.SAVED
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        check_not_saved(device, 1, "No space left on device")
        assert prepare(device, 0).cache.state == CacheState.HIT
        filler.unlink()
        assert prepare(device, 1).cache.state == CacheState.SAVED


def read_only(disk: Path) -> None:
    """Check that saved entries are still found."""
    with connect(disk / "cache") as device:
        assert prepare(device, 0).cache.state == CacheState.SAVED
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with connect(disk / "cache") as device:
        check_not_saved(device, 1, "read-only")
        assert prepare(device, 0).cache.state == CacheState.HIT


CASES = {"full": full, "read-only": read_only}

if __name__ == "__main__":
    name, folder = sys.argv[1:]
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", folder], check=False).returncode:
        sys.exit(CANNOT)
    CASES[name](Path(folder))
