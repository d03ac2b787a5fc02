"""Regions of shared memory: whose files they may be, and how many."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorKind
from nnhal_service.open_inference.shared_memory import FOLDER, RegionPart, SharedRegion, SharedRegions
from nnhal_service.sessions.limits import Limits


@pytest.fixture
def file() -> Iterator[Path]:
    path = FOLDER / f"nnhal-regions-{os.getpid()}"
    path.write_bytes(b"12345678")
    yield path
    path.unlink()


@pytest.mark.parametrize("user", [None, os.getuid() + 1])
def test_region_of_another_user(file: Path, user: int | None) -> None:
    regions = SharedRegions(Limits())
    with pytest.raises(HalError) as caught:
        regions.register(SharedRegion("name", file.name, 0, 8), user)
    assert caught.value.kind == ErrorKind.PERMISSION_DENIED
    assert regions.status("") == []


def test_folder_is_no_region() -> None:
    folder = FOLDER / f"nnhal-regions-folder-{os.getpid()}"
    folder.mkdir()
    try:
        with pytest.raises(HalError):
            SharedRegions(Limits()).register(SharedRegion("name", folder.name, 0, 0), os.getuid())
    finally:
        folder.rmdir()


def test_regions_are_bounded_and_closed(file: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    regions = SharedRegions(Limits({"shared": 2}))
    for name in ("first", "second"):
        regions.register(SharedRegion(name, file.name, 0, 8), os.getuid())
    with pytest.raises(HalError, match="limit shared"):
        regions.register(SharedRegion("third", file.name, 0, 8), os.getuid())
    regions.unregister("first")
    regions.unregister("first")
    regions.register(SharedRegion("third", file.name, 2, 4), os.getuid())
    assert regions.read(RegionPart("third", 1, 3)).tobytes() == b"456"
    regions.unregister("")
    assert set(os.listdir("/proc/self/fd")) == before
