"""What a process holds: memory, descriptors, threads; for counting leaks."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

GRPC_THREADS = ("event_engine", "grpc_global_tim", "lifeguard")
"""Names of the threads that gRPC's core keeps for a whole process. It adds some under load and lets them go when it
pleases, so they say nothing about what a client left behind."""


@dataclass(frozen=True)
class Holdings:
    """Counted from /proc. `threads`: without those of gRPC's core."""

    descriptors: int
    threads: int

    @staticmethod
    def of(pid: int) -> "Holdings":
        """What a process holds now."""
        own = [name for name in thread_names(pid) if name not in GRPC_THREADS]
        return Holdings(len(list(Path(f"/proc/{pid}/fd").iterdir())), len(own))


def thread_names(pid: int) -> list[str]:
    """Names of the threads of a process, in alphabetical order."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append(path.read_text().strip())
    return sorted(names)


def memory(pid: int, key: str) -> int:
    """A figure of /proc/PID/status in bytes: VmRSS (now) or VmHWM (the peak)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def bytes_held(pid: int) -> int:
    """Memory of a process, each page once: its own, that of files that it maps, and that of its memory files."""
    files = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
            if path.readlink().name.startswith("memfd:"):
                found = path.stat()
                files[found.st_ino] = found.st_blocks * 512
    return memory(pid, "RssAnon") + memory(pid, "RssFile") + sum(files.values())


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for a condition, at most so long; tells whether it came."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def settled(pid: int) -> Holdings:
    """What a process holds when idle threads and closed connections have gone: two looks in a row agree."""
    now = Holdings.of(pid)
    while True:
        time.sleep(1)
        before, now = now, Holdings.of(pid)
        if before == now:
            return now


@contextlib.contextmanager
def peak(pid: int) -> Iterator[list[int]]:
    """Looks at `bytes_held` every few milliseconds; gives the highest found so far."""
    highest, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            highest[0] = max(highest[0], bytes_held(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield highest
    finally:
        ended.set()
        thread.join()
