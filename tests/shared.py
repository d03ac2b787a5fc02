"""Data that is not part of the project: real models and test vectors, beside it where they are present."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def shared(path: str) -> Path:
    """A file or folder of ../shared; the test is skipped where it is absent."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"../shared/{path} is not present")
    return found
