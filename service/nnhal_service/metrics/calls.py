"""Meter of calls: finds the counts of a call by its labels, whose number is bounded, and updates them at its end."""

import threading
import time
from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeVar

from nnhal.errors import MISSED_DEADLINE, HalError, well_formed
from nnhal.types import OMITTED, ErrorKind, ErrorStatus, ExecutionResult
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_service.metrics import catalog
from nnhal_service.metrics.series import OK, CallSeries
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.request_id import Request

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

METHOD_PATHS = {
    **dict.fromkeys(("PreparedModel.ExecuteSynchronously", "PreparedModel.ExecuteSynchronouslyWithConfig"), "unary"),
    **dict.fromkeys(("PreparedModel.ExecuteFenced", "PreparedModel.ExecuteFencedWithConfig"), "fenced"),
    **dict.fromkeys(("Burst.ExecuteSynchronously", "Burst.ExecuteSynchronouslyWithConfig"), "burst"),
    **dict.fromkeys(("Device.PrepareModel", "Device.PrepareModelWithConfig"), "prepare"),
    "PreparedModel.Run": "unary",
    "Execution.ExecuteSynchronously": "reusable",
    "Execution.ExecuteFenced": "fenced",
    "Burst.Stream": "stream",
    "DataSocket.RUN": "data_socket",
    "Device.PrepareModelFromCache": "load",
    "Device.Allocate": "allocate",
    "Models.Prepare": "name",
    "inference.GRPCInferenceService.ModelInfer": "inference",
    "inference.GRPCInferenceService.ModelStreamInfer": "inference",
    "MemoryService.Upload": "upload",
    "MemoryService.Read": "download",
}
"""Paths of calls that may be refused before their meter starts, by method."""
_COUNTED = "nnhal_counted"
"""Attribute of errors that the meter of their call has counted."""
_OWN_LABELS = (ErrorKind.UNAUTHENTICATED, ErrorKind.PERMISSION_DENIED)
"""Kinds of errors with labels of their own, because their status says less."""
_INSUFFICIENT = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE.name.lower()

SeriesKey: TypeAlias = tuple[str, bytes, str, str]
"""Path, digest of the model, device, and name of the model with its version."""


class Caller(Protocol):
    """The part of a session that the meter uses."""

    @property
    def identity(self) -> object:
        """Identity of the client, whose text is its label."""

    @property
    def owner(self) -> Hashable:
        """Owner of the work of the client for the driver."""

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

    @property
    def name(self) -> str:
        """Name and version of a model of the repository, for example "detector/3"; "" for other models."""


class ModelLabels(NamedTuple):
    """Labels of a call without a prepared model. The attributes are those of `MeteredModel`."""

    device: str = ""
    digest: bytes = b""
    name: str = ""


NO_MODEL = ModelLabels()
"""Labels of a call that has nothing to do with a model or a device."""


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

    def begin(self, call: "MeteredCall", labels: tuple[str, ...]) -> None:
        """Set `trace` of a call that is to be traced, and `spans`.

        Args:
            call: the call, whose context names the trace of the client.
            labels: see `CALL_LABELS`.
        """


class MeteredCall(ExecutionCall):
    """One call. Create it at the receipt, and start it with a `CallMeter`; as a context manager, it then counts itself.

    Args:
        path: how it is executed.
        received: size of the request in bytes.
        context: of the gRPC call; None on the data socket without a trace.
        deadline_ns: of the call, as an instant; -1: none.
        cancellation: tells whether the client still waits for the result.

    Attributes:
        series: where it counts, from its start.
        sent: size of the response.
        status: status of the result, if it is not `ok` although no exception ends the call.
        trace: records the call as a trace; None if it is not traced.
    """

    series: CallSeries
    sent = 0
    status = OK
    trace: CallTrace | None = None

    def __init__(
        self,
        path: str,
        received: int = 0,
        context: Request | None = None,
        deadline_ns: int = OMITTED,
        cancellation: Cancellation | None = None,
    ) -> None:
        super().__init__(deadline_ns, cancellation)
        self.path = path
        self.received = received
        self.context = context

    def __enter__(self) -> Self:
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

    def end(self, status: int, label: str = "") -> None:
        """Count the call, which has ended with a status.

        Args:
            status: an `ErrorStatus`.
            label: its label, if it is not the name of the status.
        """
        if status == ErrorStatus.NONE:
            self.finish()
        else:
            self._fail_with(status, label or status_label(status))

    def finish(self) -> None:
        """Count the call, which has not raised."""
        duration_ns = time.perf_counter_ns() - self.received_ns
        if self.trace is not None:
            self.trace.end(self)
        if self.status is not OK:
            self.series.add_error(self.status, self.device_ns, self.received)
            return
        self.series.add(self, duration_ns)
        if self.trace is not None:
            self.series.add_exemplar(duration_ns, self.trace.id)
        if self.cancellation.cancelled:
            self.series.add_wasted("cancelled", self.device_ns)

    def fail(self, error: BaseException) -> None:
        """Count the call, which has raised."""
        hal_error = well_formed(error) if isinstance(error, HalError) else None
        status = hal_error.status if hal_error is not None else ErrorStatus.GENERAL_FAILURE
        self._fail_with(status, error_label(hal_error) if hal_error is not None else status_label(status))
        mark_counted(error)

    def _fail_with(self, status: int, label: str) -> None:
        self.status = label
        self.series.add_error(self.status, self.device_ns, self.received)
        if self.trace is not None:
            self.trace.end(self)
        if self.device_ns:
            self.series.add_wasted(self._waste_reason(status), self.device_ns)

    def waste(self, status: int, device_ns: int) -> None:
        """Count work that has ended after the call, whose status was this."""
        self.series.add_work(device_ns)
        self.series.add_wasted(self._waste_reason(status), device_ns)

    def _waste_reason(self, status: int) -> str:
        if status in MISSED_DEADLINE:
            return "deadline"
        return "cancelled" if self.cancellation.cancelled else "failed"


C = TypeVar("C", bound=MeteredCall)


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

    def start(self, call: C, caller: Caller, model: MeteredModel = NO_MODEL) -> C:
        """Start to meter a call that executes a model, and return the call."""
        key = (call.path, model.digest, model.device, model.name)
        call.series = series = caller.series.get(key) or self._find(caller, key)
        call.owner = caller.owner
        if self.tracer is not None:
            self.tracer.begin(call, series.labels)
        return call

    def count_refused(self, path: str, status: str) -> None:
        """Count a call that was refused before its session or its model was known."""
        with self._lock:
            self._add("", "", "", "", path).add_error(status, 0, 0)

    def count_session(self, caller: Caller) -> None:
        """Count a session that was opened."""
        identity = str(caller.identity)
        with self._lock:
            is_known = identity in self._sessions or len(self._sessions) < MAX_IDENTITIES
            self._sessions[identity if is_known else OTHER] += 1

    def _find(self, caller: Caller, key: SeriesKey) -> CallSeries:
        """Return the series of a call, which its session finds fast from now on."""
        path, digest, device, name = key
        with self._lock:
            series = self._add(str(caller.identity), device, digest.hex()[:MODEL_DIGITS], name, path)
            if len(caller.series) >= _CACHED_SERIES:
                caller.series.clear()
            caller.series[key] = series
        return series

    def _add(self, identity: str, device: str, model: str, name: str, path: str) -> CallSeries:
        """Return the series with some labels; with others if there are too many. The caller has the lock."""
        labels = wanted = (identity, device, model, *name.rpartition("/")[::2], path)
        if labels not in self._series:
            of_identity = self._by_identity[identity]
            if of_identity >= MAX_SERIES_OF_IDENTITY or len(self._series) >= MAX_SERIES:
                labels = (identity, device, OTHER, "", "", path)
            if not of_identity and len(self._by_identity) > MAX_IDENTITIES:
                del self._by_identity[identity]
                labels = (OTHER, device, OTHER, "", "", path)
            self._overflow += labels != wanted
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


def mark_counted(error: BaseException) -> None:
    """Note that the meter of a call counts this error."""
    vars(error)[_COUNTED] = True


def is_counted(error: HalError) -> bool:
    """Return whether the meter of a call has counted this error."""
    return _COUNTED in vars(error)


def error_label(error: HalError) -> str:
    """Return the label of an error that is well-formed."""
    return ErrorKind(error.kind).name.lower() if error.kind in _OWN_LABELS else status_label(error.status)


def status_label(status: int) -> str:
    """Return the label of a status of the HAL."""
    return OK if status == ErrorStatus.NONE else ErrorStatus(status).name.lower()
