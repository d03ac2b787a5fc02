"""Meter of preparations, which may end for their client before their work does."""

import itertools
import re
import threading
import time

from nnhal.types import CacheOutcome, CacheState, ErrorStatus, Span, SpanKind
from nnhal_driver.execution.profiling import SpanRecorder
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.work_times import WorkTimes
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import OTHER, Caller, MeteredCall, ModelLabels
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.request_id import Request

CACHE_MISS = "cache_miss"
"""Status of look-ups of models that are not in the cache. The client then sends the model; nothing has failed."""
REASONS = (
    ("share_unavailable", "the share is unavailable"),
    ("share_refused", "the entry in the share"),
    ("no_entry", "there is no entry"),
    ("off", "the cache is off"),
    ("replaced", "replaced or removed"),
    ("empty", "is empty"),
    ("too_large", "has a limit of"),
    ("damaged", "invalid size|truncated|not a file of this driver|was changed|too long|: it has .* bytes, not"),
    ("format", "has format"),
    ("key", "another key"),
    ("token", "another token"),
    ("model", "another model|another digest"),
    ("driver", "it was made by driver"),
    ("backends", "it was made for the backends|^backend .* was "),
    ("machine", "CPU has other features"),
    ("quarantine", "does not run this model for a while"),
    ("unreadable", "cannot be read"),
    ("disk_full", "is full|[Nn]o space"),
    ("unwritable", "cannot be (written|stored)|read-only"),
    ("directory", "the cache .* (is not a directory|belongs to user|has been locked)|other users may write"),
)
"""Labels for the reasons of the model cache, which are sentences with sizes and paths, each with a pattern of those for
which it stands. The first that fits is used."""

_PATTERNS = [(label, re.compile(pattern)) for label, pattern in REASONS]


def is_miss(cache: CacheOutcome) -> bool:
    """Return whether a preparation that has no model is a miss of the cache."""
    return cache.state == CacheState.MISS


class PreparationMeter(WorkTimes):
    """Meter of one preparation.

    Args:
        path: "prepare" or "load".
        received_ns: time.perf_counter_ns() at the receipt.
        received: size of the request in bytes.

    Attributes:
        cancellation: of the preparation, after its launch.
    """

    def __init__(
        self,
        metrics: WorkerMetrics,
        caller: Caller,
        path: str,
        device: str,
        received_ns: int,
        received: int,
        context: Request | None = None,
    ) -> None:
        super().__init__()
        self._metrics = metrics
        self._caller = caller
        self._path = path
        self._device = device
        self._received_ns = received_ns
        self._received = received
        self._context = context
        self._status: int = ErrorStatus.NONE
        self._call: MeteredCall | None = None
        self._lock = threading.Lock()
        self.cancellation: Cancellation | None = None

    def end(self, status: int, digest: bytes, cache: CacheOutcome, name: str = "") -> None:
        """Count the preparation, whose client is told the result.

        Args:
            status: an `ErrorStatus`.
            digest: digest of the prepared model, or b"".
            cache: what the cache did.
            name: name and version of a model of the repository.
        """
        call = MeteredCall(self._path, self._received, self._context, cancellation=self.cancellation)
        call.received_ns = self._received_ns
        self._metrics.calls.start(call, self._caller, ModelLabels(self._device, digest, name))
        with self._lock:  # against `end_unwanted`: work counts once
            call.queued_ns, call.device_ns = self.queued_ns, self.device_ns
            self._status, self._call = status, None if self.device_ns else call
        if call.spans is not None:
            self._add_stages(call.spans)
        call.end(status, CACHE_MISS if is_miss(cache) else "")
        if cache.state:
            self._metrics.count(catalog.CACHE_RESULTS, self._device, *cache_labels(cache))

    def _add_stages(self, spans: SpanRecorder) -> None:
        """Add the stages of the preparation to its trace, if it has got a slot."""
        if not self.started_ns:
            return
        queued_at, ended_at = self.started_ns - self.queued_ns, self.started_ns + self.device_ns
        if not self.device_ns:  # the client is told the result before the work has ended
            ended_at = time.perf_counter_ns()
        times = (self._received_ns, queued_at, self.started_ns, ended_at)
        for name, (start, end) in zip(("decode", "queue", "prepare"), itertools.pairwise(times), strict=True):
            spans.add(Span(SpanKind.STAGE, name, "", 0, (), start - spans.start_ns, end - start))

    def end_unwanted(self) -> None:
        """Count work that has gone on after its client was told a result."""
        with self._lock:
            call = self._call
        if call is not None:
            call.waste(self._status, self.device_ns)


def cache_labels(outcome: CacheOutcome) -> tuple[str, str]:
    """Return the state and the reason of what the cache did, as labels."""
    state = CacheState(outcome.state).name.lower()
    if not outcome.reason:
        return state, ""
    return state, next((label for label, pattern in _PATTERNS if pattern.search(outcome.reason)), OTHER)
