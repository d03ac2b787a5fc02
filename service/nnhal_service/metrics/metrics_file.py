"""File with the last metrics of a worker, in its private folder."""

import os
from contextlib import suppress
from pathlib import Path

FILE = "metrics.json"
"""Name of the file."""


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file, so that a reader sees the old contents or the new ones. If that fails, the old ones stay."""
    temporary = path.with_suffix(".new")
    with suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
