"""Preparations with cache files in a folder of the client."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import CacheState
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.service_process import Service, start_service, stop_service

TOKEN, OTHER_TOKEN = bytes(range(32)), bytes(32)
X = np.array([1, 2], np.float32)


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as connected:
        yield connected


def _prepare(device: nnhal.Device, folder: Path, operations: int = 2) -> CacheState:
    """Prepare a model, check its result, and return the outcome of the cache."""
    with device.prepare_with_files(chain(operations), folder, TOKEN) as prepared:
        assert prepared.execute([X])[0].tolist() == (X * 2**operations).tolist()
        return CacheState(prepared.cache.state)


def test_a_model_is_saved_and_loaded(device: nnhal.Device, service: Service, tmp_path: Path) -> None:
    assert _prepare(device, tmp_path) == CacheState.SAVED
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"{TOKEN.hex()}-{number}" for number in range(len(names))] != []
    assert _prepare(device, tmp_path) == CacheState.HIT
    assert list((service.log.parent / "cache").rglob(f"{b'client-'.hex()}*")) == []  # the service's names are hex


def test_damaged_files_are_replaced(device: nnhal.Device, tmp_path: Path) -> None:
    assert _prepare(device, tmp_path) == CacheState.SAVED
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    assert _prepare(device, tmp_path) == CacheState.SAVED
    assert _prepare(device, tmp_path) == CacheState.HIT


def test_files_of_another_model_are_not_loaded(device: nnhal.Device, tmp_path: Path) -> None:
    assert _prepare(device, tmp_path, 1) == CacheState.SAVED
    assert _prepare(device, tmp_path, 3) == CacheState.SAVED
    assert _prepare(device, tmp_path, 3) == CacheState.HIT


def test_a_missing_folder_is_reported(device: nnhal.Device, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert _prepare(device, tmp_path / "missing") == CacheState.SAVED
    assert "cannot be written" in caplog.text


def test_files_are_loaded_after_a_restart_of_the_service(tmp_path: Path) -> None:
    states = []
    for _ in range(2):
        service = start_service(tmp_path)
        with nnhal.connect(service.target) as device:
            states.append(_prepare(device, tmp_path))
        stop_service(service)
    assert states == [CacheState.SAVED, CacheState.HIT]


async def test_the_asyncio_client_has_cache_files_too(service: Service, tmp_path: Path) -> None:
    async with nnhal.aio.connect(service.target) as device:
        for state in (CacheState.SAVED, CacheState.HIT):
            async with await device.prepare_with_files(chain(2), tmp_path, OTHER_TOKEN) as prepared:
                assert (prepared.cache.state, (await prepared.execute([X]))[0].tolist()) == (state, (X * 4).tolist())
