"""Counts of calls with the same labels, updated at the end of each call."""

import threading
import time
from bisect import bisect_left
from collections import Counter
from typing import Protocol

from nnhal_service.metrics import catalog
from nnhal_service.metrics.catalog import DURATION_BOUNDS, QUEUE_BOUNDS
from nnhal_service.metrics.snapshot import Exemplar, HistogramValue, Snapshot

OK = "ok"
"""Status of calls that succeed."""

_DURATION_BOUNDS_NS = [round(bound * 1e9) for bound in DURATION_BOUNDS]
_QUEUE_BOUNDS_NS = [round(bound * 1e9) for bound in QUEUE_BOUNDS]


class FinishedCall(Protocol):
    """Figures of a call.

    Attributes:
        queued_ns: its wait for a slot.
        device_ns: its time with the slot.
        received: size of the request in bytes.
        sent: size of the response.
    """

    queued_ns: int
    device_ns: int
    received: int
    sent: int


class CallSeries:
    """Counts of the calls of one identity, device, model and path. Thread safe.

    Args:
        labels: see `CALL_LABELS`.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self._lock = threading.Lock()
        self._durations = [0] * (len(DURATION_BOUNDS) + 1)
        self._duration_ns = 0
        self._queued = [0] * (len(QUEUE_BOUNDS) + 1)
        self._queue_ns = 0
        self._device_ns = 0
        self._received = 0
        self._sent = 0
        self._errors: Counter[str] = Counter()
        self._wasted_ns: Counter[str] = Counter()
        self._exemplars: dict[int, Exemplar] = {}

    def add(self, call: FinishedCall, duration_ns: int) -> None:
        """Count a call that succeeded, by its time in the service."""
        queue_ns = call.queued_ns
        with self._lock:
            self._durations[bisect_left(_DURATION_BOUNDS_NS, duration_ns)] += 1
            self._duration_ns += duration_ns
            if queue_ns:
                self._queued[bisect_left(_QUEUE_BOUNDS_NS, queue_ns)] += 1
                self._queue_ns += queue_ns
            else:
                self._queued[0] += 1
            self._device_ns += call.device_ns
            self._received += call.received
            self._sent += call.sent

    def add_exemplar(self, duration_ns: int, trace_id: str) -> None:
        """Remember the trace of a call that succeeded."""
        exemplar = Exemplar(trace_id, duration_ns / 1e9, time.time())
        with self._lock:
            self._exemplars[bisect_left(_DURATION_BOUNDS_NS, duration_ns)] = exemplar

    def add_error(self, status: str, device_ns: int, received: int) -> None:
        """Count a call that failed."""
        with self._lock:
            self._errors[status] += 1
            self._device_ns += device_ns
            self._received += received

    def add_work(self, device_ns: int) -> None:
        """Count time that a call has used after its end."""
        with self._lock:
            self._device_ns += device_ns

    def add_wasted(self, reason: str, device_ns: int) -> None:
        """Count time whose result no client got."""
        with self._lock:
            self._wasted_ns[reason] += device_ns

    def collect(self, snapshot: Snapshot) -> None:
        """Add the counts to a snapshot."""
        labels = self.labels
        with self._lock:
            durations = HistogramValue(list(self._durations), self._duration_ns / 1e9, dict(self._exemplars))
            queued = HistogramValue(list(self._queued), self._queue_ns / 1e9)
            device_ns, received, sent = self._device_ns, self._received, self._sent
            errors, wasted_ns = dict(self._errors), dict(self._wasted_ns)
        if succeeded := sum(durations.counts):
            snapshot.add(catalog.CALLS, succeeded, *labels, OK)
        for status, count in errors.items():
            snapshot.add(catalog.CALLS, count, *labels, status)
        snapshot.add_histogram(catalog.CALL_DURATION, durations, *labels)
        snapshot.add_histogram(catalog.QUEUE_DURATION, queued, *labels)
        snapshot.add(catalog.DEVICE_SECONDS, device_ns / 1e9, *labels)
        for reason, ns in wasted_ns.items():
            snapshot.add(catalog.WASTED_SECONDS, ns / 1e9, *labels, reason)
        snapshot.add(catalog.RECEIVED_BYTES, received, *labels)
        snapshot.add(catalog.SENT_BYTES, sent, *labels)
