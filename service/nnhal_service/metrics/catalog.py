"""All metrics: names, types, labels and help. docs/metrics.md lists the same."""

from dataclasses import dataclass
from enum import StrEnum

_STEPS = (1.0, 2.5, 5.0)
DURATION_BOUNDS = (5e-5, *(float(f"{step}e{power}") for power in range(-4, 1) for step in _STEPS), 10.0, 30.0)
"""Upper bounds of the buckets of durations, in seconds."""
QUEUE_BOUNDS = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds of the buckets of queue times, in seconds."""

CALL_LABELS = ("identity", "device", "model", "name", "version", "path")
"""Labels of each call. `name` and `version` are empty, unless it is a model of the repository."""


class Kind(StrEnum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """Combination of the values of several workers."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: name of the family. The samples of a counter have the suffix `_total`.
        help: what it counts, in one sentence.
        bounds: of a histogram, the upper bounds of its buckets.
        merge: how the values of workers become one.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Merge = Merge.SUM

    @property
    def sample(self) -> str:
        """Name in queries: with `_total` for a counter."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


METRICS: dict[str, Metric] = {}
"""All metrics by name, in the order of the documentation, which is that of their definitions below."""


def _metric(
    name: str, kind: Kind, help_: str, *labels: str, bounds: tuple[float, ...] = (), merge: Merge = Merge.SUM
) -> Metric:
    metric = METRICS[name] = Metric(name, kind, help_, labels, bounds, merge)
    return metric


def _counter(name: str, help_: str, *labels: str) -> Metric:
    return _metric(name, Kind.COUNTER, help_, *labels)


def _gauge(name: str, help_: str, *labels: str, merge: Merge = Merge.SUM) -> Metric:
    return _metric(name, Kind.GAUGE, help_, *labels, merge=merge)


CALLS = _counter("nnhal_calls", "Calls that ended, by status.", *CALL_LABELS, "status")
CALL_DURATION = _metric(
    "nnhal_call_duration_seconds",
    Kind.HISTOGRAM,
    "Time of calls that succeeded, from the receipt of the request until the response is ready.",
    *CALL_LABELS,
    bounds=DURATION_BOUNDS,
)
QUEUE_DURATION = _metric(
    "nnhal_queue_duration_seconds",
    Kind.HISTOGRAM,
    "Time for which calls that succeeded waited for a slot.",
    *CALL_LABELS,
    bounds=QUEUE_BOUNDS,
)
DEVICE_SECONDS = _counter("nnhal_device_seconds", "Time for which backends worked for calls.", *CALL_LABELS)
WASTED_SECONDS = _counter(
    "nnhal_wasted_seconds",
    "Time for which backends worked for calls whose result no client got.",
    *CALL_LABELS,
    "reason",
)
RECEIVED_BYTES = _counter("nnhal_received_bytes", "Bytes of requests, with inputs in shared memory.", *CALL_LABELS)
SENT_BYTES = _counter("nnhal_sent_bytes", "Bytes of responses, with outputs in shared memory.", *CALL_LABELS)
RPC_ERRORS = _counter(
    "nnhal_rpc_errors",
    "Calls of any RPC that ended with an error, with the limit that refused them if one did.",
    "method",
    "status",
    "limit",
)
AUTHENTICATION_FAILURES = _counter(
    "nnhal_authentication_failures", "Calls whose credentials were invalid, or lacked a right.", "reason"
)
TLS_FAILURES = _counter("nnhal_tls_failures", "TLS handshakes of clients that failed.", "port", "reason")
CREDENTIALS_INVALID = _gauge(
    "nnhal_credentials_invalid",
    "1 if a file of credentials is invalid, so that its older contents count.",
    "file",
    merge=Merge.MAX,
)
CERTIFICATE_EXPIRY = _gauge(
    "nnhal_certificate_expiry_seconds",
    "When the certificate of the service expires, in seconds since 1970.",
    merge=Merge.MAX,
)
CACHE_RESULTS = _counter(
    "nnhal_cache_results", "What the model cache did for preparations, and why.", "device", "state", "reason"
)
CACHE_EVICTIONS = _counter("nnhal_cache_evictions", "Entries that the model cache dropped to make room.")
CACHE_DAMAGED = _counter("nnhal_cache_damaged", "Entries of the model cache that were set aside as invalid.")
CACHE_BYTES = _gauge("nnhal_cache_bytes", "Size of the model cache.", merge=Merge.MAX)
CACHE_LIMIT = _gauge("nnhal_cache_limit_bytes", "Largest size of the model cache; 0 if it is off.", merge=Merge.MAX)
CACHE_ENTRIES = _gauge("nnhal_cache_entries", "Entries of the model cache.", merge=Merge.MAX)
SHARE_READS = _counter("nnhal_cache_share_reads", "Entries that were looked for in the share, by result.", "result")
SHARE_WRITES = _counter("nnhal_cache_share_writes", "Entries to write to the share, by result.", "result")
SHARE_READ_BYTES = _counter("nnhal_cache_share_read_bytes", "Bytes of the entries that were read from the share.")
SHARE_WRITTEN_BYTES = _counter("nnhal_cache_share_written_bytes", "Bytes of the entries written to the share.")
SHARE_EVICTIONS = _counter("nnhal_cache_share_evictions", "Entries that this service removed to bound the share.")
SHARE_AVAILABLE = _gauge(
    "nnhal_cache_share_available", "1 if the share can be used, 0 if it is left alone for a while.", merge=Merge.MAX
)
SHARE_WAITING = _gauge("nnhal_cache_share_waiting", "Entries that wait to be written to the share.")
SHADOW = _counter(
    "nnhal_shadow_executions",
    "Executions that the shadow repeated, by result; or `dropped`, because it did not keep up.",
    "model",
    "result",
)
SESSIONS_OPENED = _counter("nnhal_sessions_opened", "Sessions that were opened.", "identity")
SESSIONS = _gauge("nnhal_sessions", "Open sessions.", "identity")
IN_PROGRESS = _gauge("nnhal_calls_in_progress", "Preparations and executions that are running.", "device", "kind")
QUEUED = _gauge("nnhal_calls_queued", "Preparations and executions that wait for a slot.", "device", "kind")
PREPARED_MODELS = _gauge("nnhal_prepared_models", "Prepared models that sessions hold.")
NAMED_MODELS = _gauge(
    "nnhal_named_models", "Versions of models by name, by state. A worker has 1 for each.", "model", "version", "state"
)
BATCHES = _counter("nnhal_batches", "Batches of several executions of a model by name.", "model", "version")
BATCHED = _counter("nnhal_batched_calls", "Executions that were in such a batch.", "model", "version")
MEMORY = _gauge("nnhal_memory_bytes", "Memory in use.", "kind")
BACKEND_MEMORY = _gauge(
    "nnhal_backend_memory_bytes",
    "Memory of accelerators that models use, as it counts against their limits.",
    *("device", "backend"),
)
MEMORY_LIMIT = _gauge("nnhal_memory_limit_bytes", "Memory that clients may use in all.")
WORKERS = _gauge("nnhal_workers", "Workers by state.", "state")
FLEET_MEMBERS = _gauge("nnhal_fleet_members", "Members of the fleet that this service knows, with itself.", "state")
WORKER_RESTARTS = _counter("nnhal_worker_restarts", "Workers that ended and were replaced.", "reason")
SUSPECTS = _counter("nnhal_suspect_models", "Models that were named as the cause of the crash of a worker.", "backend")
QUARANTINED = _gauge(
    "nnhal_quarantined_models", "Models that are excluded from a backend after a crash.", "backend", merge=Merge.MAX
)
PROCESS_CPU = _counter("nnhal_process_cpu_seconds", "Time of processors that workers have used.")
DESCRIPTORS = _gauge(
    "nnhal_open_descriptors", "Open files and connections of the worker that has most of them.", merge=Merge.MAX
)
DESCRIPTOR_LIMIT = _gauge(
    "nnhal_descriptor_limit", "Number of files and connections that a worker may have open.", merge=Merge.MAX
)
SPANS = _counter("nnhal_spans", "Spans of traces that have ended, and that a collector has accepted.", "result")
LOG_LINES = _counter("nnhal_log_lines", "Warnings and errors in the log.", "level", "event")
OVERFLOW = _counter("nnhal_metrics_overflow", "Calls that are counted under the label `other`, to bound the labels.")
BUILD = _gauge(
    "nnhal_build_info", "Always 1; the labels tell what runs.", "version", "revision", "hal_version", merge=Merge.MAX
)
START_TIME = _gauge("nnhal_start_time_seconds", "When the service was started, in seconds since 1970.", merge=Merge.MAX)
