"""Meter of calls: finds the counts of a call by its labels, whose number is bounded, and updates them at its end."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, TypeAlias

from nnhal.errors import MISSED_DEADLINE, HalError, well_formed
from nnhal.types import ErrorStatus, ExecutionResult
from nnhal_driver.execution.profiling import ExecutionTimes
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_service.metrics import catalog
from nnhal_service.metrics.series import OK, CallSeries
from nnhal_service.metrics.snapshot import Snapshot

OTHER = "other"
"""Label of what has no labels of its own, so that there are not too many."""
MAX_SERIES = 1000
"""Number of series for calls, after which calls with new labels count as those of other models."""
MAX_SERIES_OF_IDENTITY = 100
"""The same for one identity, so that its models do not take the place of those of others."""
MAX_IDENTITIES = 100
"""Number of identities with labels of their own."""
MODEL_DIGITS = 12
"""Number of digits of a model's digest in its label."""
_CACHED_SERIES = 256
"""Number of series that a session finds fast."""

_INSUFFICIENT = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE.name.lower()

SeriesKey: TypeAlias = tuple[str, bytes, str]
"""Path, digest of the model, and device."""


class Caller(Protocol):
    """The part of a session that the meter uses."""

    @property
    def identity(self) -> object:
        """Identity of the client, whose text is its label."""

    @property
    def series(self) -> dict[SeriesKey, CallSeries]:
        """Series that the session has used."""


class MeteredModel(Protocol):
    """The part of a prepared model that the meter uses."""

    @property
    def digest(self) -> bytes:
        """Digest of the model; b"" if it is unknown."""

    @property
    def device(self) -> str:
        """Name of its device."""


class CallContext(Protocol):
    """The part of a gRPC context that traces need."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the metadata of the call."""


class CallTrace(Protocol):
    """Trace of one call.

    Attributes:
        id: its id, in hexadecimal.
    """

    id: str

    def end(self, call: "MeteredCall") -> None:
        """End the trace of a call, which has its times, spans and status."""


class Tracer(Protocol):
    """Starts the traces of calls. Close it at the end."""

    def close(self) -> None:
        """Export what has been recorded."""

    def begin(self, call: "MeteredCall", labels: tuple[str, ...], started_ns: int, context: CallContext | None) -> None:
        """Set `trace` of a call that is to be traced, and `spans`.

        Args:
            call: the call.
            labels: identity, device, model and path.
            started_ns: time.perf_counter_ns() at the receipt.
            context: of the gRPC call, whose metadata name the trace of the client; None on the data socket.
        """


class MeteredCall(ExecutionTimes):
    """One call. As a context manager, it counts the call at the end.

    Attributes:
        received: size of the request in bytes.
        sent: size of the response.
        cancellation: of the call; it tells whether the client still waits for the result.
        status: status of the result, if it is not `ok` although no exception ends the call.
        trace: records the call as a trace; None if it is not traced.
    """

    sent = 0
    cancellation: Cancellation | None = None
    status = OK
    trace: CallTrace | None = None

    def __init__(self, series: CallSeries, started_ns: int, received: int) -> None:
        self._series = series
        self._started_ns = started_ns
        self.received = received

    def __enter__(self) -> "MeteredCall":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self.fail(error)
        else:
            self.finish()

    def note(self, result: ExecutionResult, sent: int) -> None:
        """Note the result of the call, and the size of its response in bytes."""
        self.sent = sent
        if not result.output_sufficient_size:
            self.status = _INSUFFICIENT

    def finish(self) -> None:
        """Count the call, which has not raised."""
        duration_ns = time.perf_counter_ns() - self._started_ns
        if self.trace is not None:
            self.trace.end(self)
        if self.status is not OK:
            self._series.add_error(self.status, self.device_ns, self.received)
            return
        self._series.add(self, duration_ns)
        if self.trace is not None:
            self._series.add_exemplar(duration_ns, self.trace.id)
        if self.cancellation is not None and self.cancellation.cancelled:
            self._series.add_wasted("cancelled", self.device_ns)

    def fail(self, error: BaseException) -> None:
        """Count the call, which has raised."""
        status = well_formed(error).status if isinstance(error, HalError) else ErrorStatus.GENERAL_FAILURE
        self.fail_with(status)

    def fail_with(self, status: int, label: str = "") -> None:
        """Count the call, which has failed with a status.

        Args:
            status: an `ErrorStatus`.
            label: its label, if it is not the name of the status.
        """
        self.status = label or status_label(status)
        self._series.add_error(self.status, self.device_ns, self.received)
        if self.trace is not None:
            self.trace.end(self)
        if self.device_ns:
            self._series.add_wasted(self._waste_reason(status), self.device_ns)

    def waste(self, status: int, device_ns: int) -> None:
        """Count work that has ended after the call, whose status was this."""
        self._series.add_work(device_ns)
        self._series.add_wasted(self._waste_reason(status), device_ns)

    def _waste_reason(self, status: int) -> str:
        if status in MISSED_DEADLINE:
            return "deadline"
        return "cancelled" if self.cancellation is not None and self.cancellation.cancelled else "failed"


class CallMeter:
    """All series for calls. Thread safe.

    Attributes:
        tracer: starts traces; None if calls are not traced.
    """

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self._series: dict[tuple[str, ...], CallSeries] = {}
        self._by_identity: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()
        self._overflow = 0
        self._lock = threading.Lock()

    def start(
        self,
        caller: Caller,
        model: MeteredModel,
        path: str,
        started_ns: int,
        received: int = 0,
        context: CallContext | None = None,
    ) -> MeteredCall:
        """Return the meter of a call that executes a model.

        Args:
            caller: session of the client.
            model: the model.
            path: how it is executed.
            started_ns: time.perf_counter_ns() at the receipt.
            received: size of the request in bytes.
            context: of the gRPC call, if it is one.
        """
        key = (path, model.digest, model.device)
        series = caller.series.get(key) or self._find(caller, key)
        call = MeteredCall(series, started_ns, received)
        if self.tracer is not None:
            self.tracer.begin(call, series.labels, started_ns, context)
        return call

    def start_other(
        self,
        caller: Caller,
        path: str,
        started_ns: int,
        received: int = 0,
        device: str = "",
        digest: bytes = b"",
        context: CallContext | None = None,
    ) -> MeteredCall:
        """Return the meter of a call that executes no model. The arguments are those of `start`."""
        key = (path, digest, device)
        series = caller.series.get(key) or self._find(caller, key)
        call = MeteredCall(series, started_ns, received)
        if self.tracer is not None and context is not None:
            self.tracer.begin(call, series.labels, started_ns, context)
        return call

    def count_session(self, caller: Caller) -> None:
        """Count a session that was opened."""
        identity = str(caller.identity)
        with self._lock:
            is_known = identity in self._sessions or len(self._sessions) < MAX_IDENTITIES
            self._sessions[identity if is_known else OTHER] += 1

    def _find(self, caller: Caller, key: SeriesKey) -> CallSeries:
        path, digest, device = key
        with self._lock:
            series = self._add(str(caller.identity), device, digest.hex()[:MODEL_DIGITS], path)
            if len(caller.series) >= _CACHED_SERIES:
                caller.series.clear()
            caller.series[key] = series
        return series

    def _add(self, identity: str, device: str, model: str, path: str) -> CallSeries:
        """Return the series with some labels; with others if there are too many. The caller has the lock."""
        labels = (identity, device, model, path)
        if labels not in self._series:
            of_identity = self._by_identity[identity]
            if of_identity >= MAX_SERIES_OF_IDENTITY or len(self._series) >= MAX_SERIES:
                labels = (identity, device, OTHER, path)
            if not of_identity and len(self._by_identity) > MAX_IDENTITIES:
                del self._by_identity[identity]
                labels = (OTHER, device, OTHER, path)
            self._overflow += labels != (identity, device, model, path)
        if labels not in self._series:
            self._series[labels] = CallSeries(labels)
            self._by_identity[labels[0]] += 1
        return self._series[labels]

    def collect(self, snapshot: Snapshot) -> None:
        """Add all counts to a snapshot."""
        with self._lock:
            series = list(self._series.values())
            overflow, sessions = self._overflow, dict(self._sessions)
        for each in series:
            each.collect(snapshot)
        for identity, count in sessions.items():
            snapshot.add(catalog.SESSIONS_OPENED, count, identity)
        snapshot.add(catalog.OVERFLOW, overflow)


def status_label(status: int) -> str:
    """Return the label of a status of the HAL."""
    return OK if status == ErrorStatus.NONE else ErrorStatus(status).name.lower()
