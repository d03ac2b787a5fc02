"""Devices and cache files, closed at the end of each test."""

from collections.abc import Iterator

import pytest

from driver.backends import registry
from driver.backends.api import Backend
from driver.device import Device
from tests.driver.caching.pair import KEY, Pair


class Devices:
    """Makes devices; each has its own backends, as after a restart."""

    def __init__(self) -> None:
        self.all: list[Device] = []

    def of(self, *backends: Backend | str, key: bytes | None = KEY, check: bool = True) -> Device:
        if "CpuAcc" in backends:
            pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
        real = [registry.create([one])[0] if isinstance(one, str) else one for one in backends]
        self.all.append(Device("test", real, cache_key=key, check_cached_data=check))
        return self.all[-1]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture
def devices() -> Iterator[Devices]:
    made = Devices()
    yield made
    for device in made.all:
        device.close()
