"""A real S3 server in a process of its own. Needs moto[server] and s3fs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.concurrency import wait_until

_PORT = re.compile(rb"Running on http://127\.0\.0\.1:(\d+)")


class S3Server:
    """S3 in a process of its own, which forgets everything when it ends. Close it when done."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self.environment = {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
        }

    def start(self) -> None:
        """Start the server, at the port of before."""
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        assert wait_until(lambda: _PORT.search(self._log.read_bytes()) is not None, 120), self._log.read_text()
        found = _PORT.search(self._log.read_bytes())
        assert found is not None
        self._port = int(found[1])

    def files(self) -> Any:
        """Return a connection to it, and create its bucket if it has none."""
        import s3fs

        endpoint = self.environment["FSSPEC_S3_ENDPOINT_URL"]
        files = s3fs.S3FileSystem(key="id", secret="secret", endpoint_url=endpoint, use_listings_cache=False)
        with suppress(FileExistsError):
            files.mkdir("bucket")
        return files

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def running_s3(log: Path) -> Iterator[S3Server]:
    """Yield a server with an empty bucket."""
    server = S3Server(log)
    try:
        server.files()
        yield server
    finally:
        server.close()
