"""Version of nnhal, and the commit that it was built from."""

import functools

__version__ = "1.0.0rc1"

REVISION = ""
"""Commit of a release, which `tools.dev.release` writes; "" in a clone."""
_GIT_TIMEOUT_S = 10.0


@functools.cache
def find_revision() -> str:
    """Return the first 12 digits of the commit that this program runs from, or "" if it is unknown."""
    import subprocess  # noqa: PLC0415 - most clients need neither
    from pathlib import Path  # noqa: PLC0415

    root = Path(__file__).resolve().parents[2]
    if REVISION or not (root / ".git").exists():
        return REVISION
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def describe_version() -> str:
    """Return the version and the revision, for example "1.0.0 (12ab34cd56ef)"."""
    return f"{__version__} ({find_revision()})" if find_revision() else __version__
