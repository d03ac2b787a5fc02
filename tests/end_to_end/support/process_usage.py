"""Memory, descriptors and threads of a process, to detect leaks."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GRPC_THREADS = ("event_engine", "grpc_global_tim", "lifeguard")
"""Names of threads of gRPC's core. It starts and ends them by load, so they do not indicate leaks of a client."""


@dataclass(frozen=True)
class ProcessUsage:
    """Descriptors and threads of a process, counted from /proc. Threads of gRPC's core are not counted."""

    descriptors: int
    threads: int

    @staticmethod
    def read(pid: int) -> "ProcessUsage":
        """Count the current descriptors and threads of a process."""
        own = [name for name in thread_names(pid) if name not in GRPC_THREADS]
        return ProcessUsage(len(list(Path(f"/proc/{pid}/fd").iterdir())), len(own))


def thread_names(pid: int) -> list[str]:
    """Return the names of the threads of a process in alphabetical order."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append(path.read_text().strip())
    return sorted(names)


def status_bytes(pid: int, key: str) -> int:
    """Return a figure of /proc/PID/status in bytes: VmRSS (now) or VmHWM (the peak)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def memory_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, each page counted once: private, mapped files, and memfds."""
    files = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
            if path.readlink().name.startswith("memfd:"):
                status = path.stat()
                files[status.st_ino] = status.st_blocks * 512
    return status_bytes(pid, "RssAnon") + status_bytes(pid, "RssFile") + sum(files.values())


def settled_usage(pid: int) -> ProcessUsage:
    """Wait until idle threads and closed connections have gone: until two counts, one second apart, are equal."""
    now = ProcessUsage.read(pid)
    while True:
        time.sleep(1)
        before, now = now, ProcessUsage.read(pid)
        if before == now:
            return now


@contextlib.contextmanager
def track_peak(pid: int) -> Iterator[list[int]]:
    """Sample `memory_bytes` every few milliseconds. Yield a list with the highest value so far."""
    highest, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            highest[0] = max(highest[0], memory_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield highest
    finally:
        ended.set()
        thread.join()
