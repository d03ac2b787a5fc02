"""Fixtures of the tests with real workers."""

from pathlib import Path

import pytest


@pytest.fixture
def behavior(tmp_path: Path) -> Path:
    """Return the file that tells the hostile backend how to behave."""
    file = tmp_path / "behavior"
    file.write_text("")
    return file
