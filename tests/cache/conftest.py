"""A store in the temporary directory of the test."""

from pathlib import Path

import pytest

from nnhal_cache.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 2**22)
