"""A real service in a process of its own, reached over a real socket."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Service:
    """A running service."""

    target: str
    process: subprocess.Popen[str]
    log: Path

    def logged(self, text: str) -> bool:
        """Whether a line of the log holds a text."""
        return text in self.log.read_text()


def start(folder: Path, *options: str, module: str = "tools.cli", **settings: str) -> Service:
    """Starts `nnhal serve` on a free port and waits until it listens.

    Its cache is in the folder: another one that is started there finds it.

    Args:
        module: what is run as `nnhal`.
        settings: become environment variables.
    """
    log = folder / "service.log"
    command = [sys.executable, "-P", "-m", module, "serve", "--listen", "127.0.0.1:0", *options]
    own = {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1", "NNHAL_CACHE_DIR": str(folder / "cache")}
    environment = {**os.environ, **own, **settings}
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        process.kill()
        raise RuntimeError(f"the service did not start: {log.read_text()}")
    return Service(line.removeprefix("listening on ").strip(), process, log)


def stop(service: Service) -> int:
    """Ends a service as an operator does; gives its exit status. One that hangs says in its log where, and ends."""
    service.process.terminate()
    try:
        return service.process.wait(timeout=60)
    finally:
        service.process.kill()
        assert service.process.stdout is not None
        service.process.stdout.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that the tests of one worker share."""
    running = start(tmp_path_factory.mktemp("service"))
    yield running
    stop(running)
