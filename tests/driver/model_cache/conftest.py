"""Fixtures for devices and cache files."""

from collections.abc import Iterator

import pytest

from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from tests.driver.model_cache.cache_files import KEY, Pair


class Devices:
    """Factory of devices. Each device has its own backends, as after a restart."""

    def __init__(self) -> None:
        self.all: list[Device] = []

    def create(
        self, *backends: Backend | str, key: bytes | None = KEY, check: bool = True, merge: bool = True
    ) -> Device:
        if "CpuAcc" in backends:
            pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
        objects = [registry.create([backend])[0] if isinstance(backend, str) else backend for backend in backends]
        device = Device(
            "test", objects, DeviceOptions(merge_partitions=merge, cache=CacheOptions(key, check_data=check))
        )
        self.all.append(device)
        return device


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.fixture
def devices() -> Iterator[Devices]:
    devices = Devices()
    yield devices
    for device in devices.all:
        device.close()
