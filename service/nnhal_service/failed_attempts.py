"""Record of failed attempts to use a service: each is counted, and the audit log has a line a minute for each host."""

import threading
import time
from collections.abc import Callable

from nnhal.lru import LruDict
from nnhal_service import log

INTERVAL_S = 60.0
"""Seconds between two lines about the same host."""
_MAX_HOSTS = 1000
"""Number of hosts that are known. Clients may have many addresses."""


class FailedAttempts:
    """Record of one process. Thread safe.

    Args:
        action: name of what failed, for the audit log.
        count: called with the labels of each failure.
    """

    def __init__(
        self,
        action: str,
        count: Callable[..., None] = lambda *labels: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._action = action
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._hosts: LruDict[str, tuple[float, int]] = LruDict(_MAX_HOSTS)

    def note(self, peer: str, why: str, *labels: str) -> None:
        """Count a failure of a client, and log it unless its host has had a line lately. `peer` ends with `:PORT`."""
        self._count(*labels)
        host, now = peer.rpartition(":")[0] or peer, self._clock()
        with self._lock:
            next_at, omitted = self._hosts.get(host, (now, 0))
            is_due = now >= next_at
            self._hosts.put(host, (now + INTERVAL_S, 0) if is_due else (next_at, omitted + 1))
        if is_due:
            fields = {"omitted": omitted} if omitted else {}
            log.audit(self._action, by=host, result=f"failed: {why}", **fields)
