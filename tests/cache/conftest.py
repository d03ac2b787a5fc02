"""A store in a directory of the test's own."""

from pathlib import Path

import pytest

from cache.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 2**22)
