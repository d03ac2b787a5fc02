"""A program: a service whose cache is on a disk that is full, or read-only. It mounts one: run it in a mount namespace.

python -m tests.service.troubled_cache full|read-only DIR. The exit code is CANNOT where it may not mount.
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
from service.server import Server
from service.settings import Settings
from tests.cache.full_disk import CANNOT
from tests.service.saving_model import SIZE, model, weights


@contextmanager
def connected(root: Path) -> Iterator[nnhal.Device]:
    """A device of a service with this cache directory."""
    settings = Settings(listen=("127.0.0.1:0",), cache_dir=root, backends=("CpuRef",))
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        yield device


def prepared(device: nnhal.Device, number: int) -> nnhal.PreparedModel:
    """A model, prepared by way of the cache; it computes right."""
    made = device.prepare(model(number), cache=True).result(60)
    np.testing.assert_array_equal(made.execute([np.zeros(SIZE, np.float32)])[0], weights(number))
    return made


def check_not_saved(device: nnhal.Device, number: int, reason: str) -> None:
    """The model is prepared and not saved; why not is said."""
    made = prepared(device, number)
    assert made.cache.state == CacheState.NOT_SAVED and reason in made.cache.reason, made.cache
    assert [(one.code, one.text) for one in made.warnings] == [("cache-not-saved", made.cache.reason)]


def full(disk: Path) -> None:
    """What was saved before is found; with room again the next one is saved."""
    with connected(disk / "cache") as device:
        assert prepared(device, 0).cache.state == CacheState.SAVED
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        check_not_saved(device, 1, "No space left on device")
        assert prepared(device, 0).cache.state == CacheState.HIT
        filler.unlink()
        assert prepared(device, 1).cache.state == CacheState.SAVED


def read_only(disk: Path) -> None:
    """What was saved before is found."""
    with connected(disk / "cache") as device:
        assert prepared(device, 0).cache.state == CacheState.SAVED
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with connected(disk / "cache") as device:
        check_not_saved(device, 1, "read-only")
        assert prepared(device, 0).cache.state == CacheState.HIT


TROUBLES = {"full": full, "read-only": read_only}

if __name__ == "__main__":
    name, place = sys.argv[1:]
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", place], check=False).returncode:
        sys.exit(CANNOT)
    TROUBLES[name](Path(place))
