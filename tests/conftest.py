"""Fixture of all tests: services keep their files in temporary folders, not in those of the user."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _private_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield
