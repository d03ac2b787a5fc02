"""Everything that a service holds, its objects counted: what must be the same before and after clients come and go."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.processes import Holdings, memory, settled, until

ROOT = Path(__file__).resolve().parents[2]
REST_S = 1.2
"""A second after its last session has ended a service gives memory back."""


@dataclass(frozen=True)
class CountedService:
    """A service that can be asked for its objects (`tests.end_to_end.counted_service`). `counts`: the file for them."""

    service: Service
    counts: Path

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.service.process.pid

    def objects(self) -> dict[str, int]:
        """How many objects of each type it holds."""
        self.counts.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        assert until(self.counts.exists, 30), "the service does not tell what it holds"
        found: dict[str, int] = json.loads(self.counts.read_text())
        return found

    def everything(self) -> "Everything":
        """What it holds once every session has ended and idle threads have gone."""
        assert all_ended(self.service)
        plain, objects = settled(self.pid), self.objects()
        while True:
            time.sleep(REST_S)
            before, (plain, objects) = (plain, objects), (Holdings.of(self.pid), self.objects())
            if before == (plain, objects):
                return Everything(plain, objects, mapped(self.pid), memory(self.pid, "VmRSS"))


@dataclass(frozen=True)
class Everything:
    """What a service holds. `mappings`: of shared memory; `resident`: bytes of memory."""

    plain: Holdings
    objects: dict[str, int]
    mappings: int
    resident: int

    def changed_since(self, before: "Everything") -> dict[str, tuple[int, int]]:
        """Objects, descriptors, threads and mappings that have changed: how many there were, and are. Fewer threads and
        descriptors are no harm: gRPC lets some go when it pleases."""
        kinds = sorted({*self.objects, *before.objects})
        counts = {kind: (before.objects.get(kind, 0), self.objects.get(kind, 0)) for kind in kinds}
        changed = {kind: pair for kind, pair in counts.items() if pair[0] != pair[1]}
        for name in ("descriptors", "threads"):
            pair = (getattr(before.plain, name), getattr(self.plain, name))
            if pair[1] > pair[0]:
                changed[name] = pair
        if self.mappings != before.mappings:
            changed["mappings"] = (before.mappings, self.mappings)
        return changed


def sessions(service: Service) -> tuple[int, int]:
    """How many sessions the log has seen begin and end."""
    log = service.log.read_text()
    return log.count(" session-opened "), log.count(" session-ended ")


def all_ended(service: Service, seconds: float = 15) -> bool:
    """Waits until every session has ended; tells whether they have."""
    return until(lambda: len(set(sessions(service))) == 1, seconds)


def mapped(pid: int) -> int:
    """How many shared memories a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:nnhal ")


@contextmanager
def counted_service(folder: Path, *options: str, **settings: str) -> Iterator[CountedService]:
    """Runs one that lets clients that have gone go soon; it ends well, and has logged no stack."""
    soon = {"NNHAL_SESSION_GRACE_S": "0.1", "NNHAL_IDLE_THREAD_S": "0.3"}
    counts = folder / "counts.json"
    surroundings = {"COUNTS": str(counts), "PYTHONPATH": str(ROOT), **soon, **settings}
    running = start(folder, *options, module="tests.end_to_end.counted_service", **surroundings)
    try:
        yield CountedService(running, counts)
    finally:
        status = stop(running)
    assert status == 0
    assert not running.logged("Traceback"), running.log.read_text()
    assert not running.logged("internal error"), running.log.read_text()
