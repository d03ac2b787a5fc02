"""A service in another process, reached over a real socket."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.concurrency import wait_until
from tests.end_to_end.support.forking import forked_services
from tests.end_to_end.support.forking.forked_services import ForkedProcess

_PROGRAM = "nnhal_tools.cli"
_READ_AT_START = ("GRPC_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON")
"""Prefixes of variables that the interpreter and libraries read when they start."""


@dataclass(frozen=True)
class Service:
    """A running service."""

    target: str
    process: subprocess.Popen[str] | ForkedProcess[str]
    log: Path

    @property
    def pid(self) -> int:
        """Process id of the current worker 0, which serves the clients. `process` is its supervisor."""
        return worker_pids(self.process.pid)[0]

    def logged(self, text: str) -> bool:
        """Return whether the log contains a text."""
        return text in self.log.read_text()


def http_address(service: Service) -> str:
    """Return HOST:PORT of the HTTP port of a service, once it serves."""
    assert wait_until(lambda: service.logged("http-serving"), 60)
    (port,) = set(re.findall(r"http-serving port=(\d+)", service.log.read_text()))
    return f"127.0.0.1:{port}"


def worker_pids(supervisor: int) -> list[int]:
    """Return the processes of the workers of a service, by their age. The template, its first child, has one thread."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    workers = []
    for pid in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            is_helper = Path(f"/proc/{pid}/comm").read_text().strip() in (
                "nnhal-admin",
                "nnhal-share",
                "nnhal-shadow",
                "nnhal-mirror",
                "nnhal-engine",
            )
            if not is_helper and len(list(Path(f"/proc/{pid}/task").iterdir())) > 1:
                workers.append(int(pid))
    return workers


def helper_pid(service: Service, name: str, other_than: int = 0) -> int:
    """Return the process of a service with a name, for example nnhal-share, once it has started."""
    supervisor, found = service.process.pid, list[int]()

    def find() -> bool:
        for pid in map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                has_name = Path(f"/proc/{pid}/comm").read_text().strip() == name
                if has_name and pid != other_than and not has_ended(pid):
                    found.append(pid)
        return bool(found)

    assert wait_until(find, 60)
    return found[-1]


def stop_running(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until all its threads are stopped: one that still runs could answer."""
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: all(_is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()), 60)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended. Its new parent may not have waited for it yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end while the file is read
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


def start_service(folder: Path, *options: str, module: str = _PROGRAM, **settings: str) -> Service:
    """Start `nnhal serve` on a free port and wait until it listens.

    Tests fork the process from one that has imported everything, unless they run another module, or set variables that
    the interpreter or libraries read when they start. Benchmarks start the program as operators do.

    Args:
        folder: place of its log and its cache. Services that are started in the same folder share a cache.
        options: command line options.
        module: the module to run as `nnhal`.
        settings: environment variables.

    Raises:
        RuntimeError: the service did not start.
    """
    log = folder / "service.log"
    arguments = ["serve", "--listen", "127.0.0.1:0", *options]
    defaults = {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1", "NNHAL_CACHE_DIR": str(folder / "cache")}
    defaults["NNHAL_SANDBOX_PATHS"] = str(folder)  # plug-ins of tests record their calls there
    environment = {**os.environ, **defaults, **settings}
    is_plain = module == _PROGRAM and not any(name.startswith(_READ_AT_START) for name in settings)
    with log.open("w") as stderr:
        process = _start(module, arguments, environment, stderr, forked=is_plain and "PYTEST_VERSION" in os.environ)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        process.kill()
        raise RuntimeError(f"the service did not start: {log.read_text()}")
    return Service(line.removeprefix("listening on ").strip(), process, log)


def _start(
    module: str, arguments: list[str], environment: dict[str, str], stderr: IO[str], *, forked: bool
) -> "subprocess.Popen[str] | ForkedProcess[str]":
    if forked:
        return forked_services.start(arguments, environment, stderr)
    command = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)


def stop_service(service: Service) -> int:
    """Stop a service with SIGTERM and return its exit status. A service that hangs logs where, and exits."""
    service.process.terminate()
    return await_end(service)


def await_end(service: Service) -> int:
    """Return the exit status of a service that has been told to stop. A second SIGTERM at its end might kill it."""
    try:
        return service.process.wait(timeout=60)
    finally:
        service.process.kill()
        assert service.process.stdout is not None
        service.process.stdout.close()
