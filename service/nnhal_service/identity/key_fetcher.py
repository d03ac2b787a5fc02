"""Keys of an issuer of JSON Web Tokens at a URL: the supervisor has them fetched into a file for its workers."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nnhal_service.identity.jwks import is_url

FETCH_S, RETRY_S = 60.0, 5.0
"""Seconds between two fetches; and after one that has failed."""


class KeyFetcher:
    """Fetches the keys regularly, each time in a process of its own. Close it when done.

    Args:
        source: a URL, or a path, or "". If it is not a URL, nothing happens.
        log: level and format of the log.

    Attributes:
        source: the same.
    """

    def __init__(self, source: str, log: tuple[str, str], fetch_s: float = FETCH_S, retry_s: float = RETRY_S) -> None:
        self.source = source
        self._log = log
        self._periods = fetch_s, retry_s
        self._folder = Path(tempfile.mkdtemp(prefix="nnhal-keys-")) if is_url(self.source) else None
        self._due = 0.0
        self._fetch: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> str:
        """Path of the file that a worker reads in place of the URL; or the source itself."""
        return self.source if self._folder is None else str(self._path)

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / "keys.json"

    def step(self) -> None:
        """Start a fetch if one is due. Call it regularly."""
        if self._folder is None or time.monotonic() < self._due:
            return
        if self._fetch is not None and self._fetch.poll() is None:
            return
        age_s = time.time() - self._path.stat().st_mtime if self._path.exists() else float("inf")
        fetch_s, retry_s = self._periods
        self._due = time.monotonic() + (fetch_s if age_s < fetch_s else retry_s)
        if age_s < fetch_s:
            return
        command = [sys.executable, "-m", "nnhal_service.identity.jwks", self.source, str(self._path), *self._log]
        self._fetch = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """End a fetch that runs, and remove the file."""
        if self._fetch is not None and self._fetch.poll() is None:
            self._fetch.kill()
            self._fetch.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
