"""Headless Chromium for tests of HTML pages."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

_CHROMIUM = shutil.which("chromium")
_FLAGS = [
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=3000"),
]
_START_S = 120

needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")


def run_chromium(folder: Path, page: Path, fragment: str, *flags: str) -> bytes:
    """Open a page in Chromium, with a profile of its own, and return the output of Chromium.

    Args:
        folder: a temporary folder for the profile.
        page: the HTML file.
        fragment: "#" and the fragment of the address, or "".
        flags: further options of Chromium, for example `--dump-dom`.
    """
    assert _CHROMIUM is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # the sandbox does not work as root
    profile = f"--user-data-dir={folder / f'profile-{time.monotonic_ns()}'}"
    command = [_CHROMIUM, *_FLAGS, *sandbox, profile, *flags, f"{page.as_uri()}{fragment}"]
    return subprocess.run(command, check=True, capture_output=True, timeout=_START_S).stdout
