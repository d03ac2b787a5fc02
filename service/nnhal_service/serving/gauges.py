"""Gauges of a service process: what it holds at the moment of a snapshot of its metrics."""

import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nnhal.types import HAL_VERSION
from nnhal.version import __version__, find_revision
from nnhal_cache.errors import CacheError
from nnhal_cache.store import Store
from nnhal_driver.backends.boundary.answers import memory_bytes
from nnhal_driver.device import Device
from nnhal_driver.quarantine import Quarantine
from nnhal_service.identity.authentication import Authentication
from nnhal_service.memory_limits import resident_bytes
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import MAX_IDENTITIES, OTHER
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session_registry import SessionRegistry

if TYPE_CHECKING:
    from nnhal_service.tls.reloading import ReloadingCertificates

CACHE_S = 15.0
"""Seconds between two looks at the entries of the model cache."""


def collect_credentials(
    authentication: Authentication, certificates: "ReloadingCertificates | None", snapshot: Snapshot
) -> None:
    """Add the state of the files with credentials to a snapshot."""
    problems = authentication.problems()
    if certificates is not None:
        problems["certificates"] = certificates.problem
        snapshot.add(catalog.CERTIFICATE_EXPIRY, certificates.current.expires.timestamp())
    for file, problem in problems.items():
        snapshot.add(catalog.CREDENTIALS_INVALID, bool(problem), file)


class Gauges:
    """Values of one process."""

    def __init__(
        self,
        sessions: SessionRegistry,
        limits: Limits,
        quota: MemoryQuota,
        store: Store,
        devices: Sequence[Device],
        quarantine: Quarantine,
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._store = store
        self._devices = devices
        self._quarantine = quarantine
        self._cache_at = -CACHE_S
        self._cache_usage = 0, 0

    def collect(self, snapshot: Snapshot) -> None:
        """Add all values to a snapshot."""
        self._collect_sessions(snapshot)
        self._collect_memory(snapshot)
        self._collect_cache(snapshot)
        for device in self._devices:
            snapshot.add(catalog.IN_PROGRESS, device.running_executions, device.name, "execution")
            snapshot.add(catalog.IN_PROGRESS, device.running_preparations, device.name, "preparation")
            snapshot.add(catalog.QUEUED, device.queued_executions, device.name, "execution")
            snapshot.add(catalog.QUEUED, device.queued_preparations, device.name, "preparation")
            for backend in device.backends:
                snapshot.add(catalog.BACKEND_MEMORY, memory_bytes(backend), device.name, backend.id)
        for id_ in dict.fromkeys(backend.id for device in self._devices for backend in device.backends):
            snapshot.add(catalog.QUARANTINED, self._quarantine.count(id_), id_)
        snapshot.add(catalog.BUILD, 1, __version__, find_revision(), str(HAL_VERSION))
        self._collect_process(snapshot)

    def _collect_process(self, snapshot: Snapshot) -> None:
        snapshot.add(catalog.PROCESS_CPU, time.process_time())
        with suppress(OSError):  # there are no descriptors left to count the others
            snapshot.add(catalog.DESCRIPTORS, len(os.listdir("/proc/self/fd")))
        snapshot.add(catalog.DESCRIPTOR_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def _collect_sessions(self, snapshot: Snapshot) -> None:
        sessions = self._sessions.all()
        by_identity = Counter(str(session.identity) for session in sessions)
        for rank, (identity, count) in enumerate(by_identity.most_common()):
            snapshot.add(catalog.SESSIONS, count, identity if rank < MAX_IDENTITIES else OTHER)
        snapshot.add(catalog.PREPARED_MODELS, sum(session.number_of("prepared_models") for session in sessions))

    def _collect_memory(self, snapshot: Snapshot) -> None:
        objects, total = self._quota.objects, self._quota.total
        snapshot.add(catalog.MEMORY, objects, "objects")
        snapshot.add(catalog.MEMORY, max(0, total - objects), "work")
        with suppress(OSError):  # there is no free descriptor
            snapshot.add(catalog.MEMORY, resident_bytes(), "resident")
        snapshot.add(catalog.MEMORY_LIMIT, self._limits["service_memory_bytes"])

    def _collect_cache(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._cache_at >= CACHE_S:
            self._cache_at = time.monotonic()
            try:
                self._cache_usage = self._store.usage()
            except CacheError:
                self._cache_usage = 0, 0
        entries, size = self._cache_usage
        snapshot.add(catalog.CACHE_ENTRIES, entries)
        snapshot.add(catalog.CACHE_BYTES, size)
        snapshot.add(catalog.CACHE_LIMIT, self._store.max_bytes)
        counters = self._store.counters()
        snapshot.add(catalog.CACHE_EVICTIONS, counters.evictions)
        snapshot.add(catalog.CACHE_DAMAGED, counters.set_aside)
