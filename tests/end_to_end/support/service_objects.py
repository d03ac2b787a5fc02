"""Snapshots of a service's objects, descriptors, threads and memory, to compare before and after clients."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.concurrency import wait_until
from tests.end_to_end.support.process_usage import ProcessUsage, settled_usage, status_bytes
from tests.end_to_end.support.service_process import Service, start_service, stop_service

ROOT = Path(__file__).resolve().parents[3]
_TIMERS = ("nnhal_driver.scheduling.timers.Timer", "nnhal_driver.scheduling.deadline.Deadline")
REST_S = 1.2
"""A service returns free memory to the system one second after its last session has ended."""


@dataclass(frozen=True)
class CountedService:
    """A running `tests.end_to_end.support.counted_service`. It writes object counts to the file `counts`."""

    service: Service
    counts: Path

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self.service.pid

    def objects(self) -> dict[str, int]:
        """Count the live objects of the service by type."""
        self.counts.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        assert wait_until(self.counts.exists, 30), "the service did not write its object counts"
        counts: dict[str, int] = json.loads(self.counts.read_text())
        return counts

    def snapshot(self) -> "Snapshot":
        """Wait until all sessions and idle threads have ended, and return a stable snapshot."""
        assert wait_for_session_ends(self.service)
        plain, objects = settled_usage(self.pid), self.objects()
        while True:
            time.sleep(REST_S)
            before, (plain, objects) = (plain, objects), (ProcessUsage.read(self.pid), self.objects())
            if before == (plain, objects):
                return Snapshot(plain, objects, count_shared_mappings(self.pid), status_bytes(self.pid, "VmRSS"))


@dataclass(frozen=True)
class Snapshot:
    """State of a service.

    Attributes:
        usage: its descriptors and threads.
        objects: live objects by type.
        mappings: number of shared memory mappings.
        resident: resident memory in bytes.
    """

    usage: ProcessUsage
    objects: dict[str, int]
    mappings: int
    resident: int

    def changed_since(self, before: "Snapshot") -> dict[str, tuple[int, int]]:
        """Return the counts that differ, as (before, now).

        Fewer threads, descriptors or timers do not count as a difference: gRPC closes some at any time, and a timer
        may have been due meanwhile.
        """
        kinds = sorted({*self.objects, *before.objects})
        counts = {kind: (before.objects.get(kind, 0), self.objects.get(kind, 0)) for kind in kinds}
        changed = {kind: pair for kind, pair in counts.items() if pair[0] != pair[1]}
        for kind in _TIMERS:
            if kind in changed and changed[kind][1] < changed[kind][0]:
                del changed[kind]
        for name in ("descriptors", "threads"):
            pair = (getattr(before.usage, name), getattr(self.usage, name))
            if pair[1] > pair[0]:
                changed[name] = pair
        if self.mappings != before.mappings:
            changed["mappings"] = (before.mappings, self.mappings)
        return changed


def session_counts(service: Service) -> tuple[int, int]:
    """Count the opened and the ended sessions in the log."""
    log = service.log.read_text()
    return log.count(" session-opened "), log.count(" session-ended ")


def wait_for_session_ends(service: Service, seconds: float = 15) -> bool:
    """Wait until every session has ended. Return False on a timeout."""
    return wait_until(lambda: len(set(session_counts(service))) == 1, seconds)


def count_shared_mappings(pid: int) -> int:
    """Count the shared memory mappings of a process."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:nnhal ")


@contextmanager
def run_counted_service(folder: Path, *options: str, **settings: str) -> Iterator[CountedService]:
    """Run a service that releases lost clients soon. At the end, check its exit status and that it logged no stack."""
    short_timeouts = {"NNHAL_SESSION_GRACE_S": "0.1", "NNHAL_IDLE_THREAD_S": "0.3"}
    counts = folder / "counts.json"
    environment = {"COUNTS": str(counts), "PYTHONPATH": str(ROOT), **short_timeouts, **settings}
    running = start_service(folder, *options, module="tests.end_to_end.support.counted_service", **environment)
    try:
        yield CountedService(running, counts)
    finally:
        status = stop_service(running)
    assert status == 0
    assert not running.logged("Traceback"), running.log.read_text()
    assert not running.logged("internal error"), running.log.read_text()
