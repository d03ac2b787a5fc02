"""Fixtures of fleets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import stop_service
from tests.fleet.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair()
    try:
        pair.start(tmp_path / "a", "a", "--backends", "CpuRef")
        pair.start(tmp_path / "b", "b", "--backends", "CpuRef", "--workers", "2")
        pair.publish()
        yield pair
    finally:
        for host in pair.hosts:
            stop_service(host.service)
