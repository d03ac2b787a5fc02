"""Statistics of models by name: numbers and times of requests, as Triton's extension has them."""

import threading
import time
from dataclasses import dataclass, field

from nnhal.lru import LruDict

STAGES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
_MAX_MODELS = 1000


@dataclass(slots=True)
class ModelCounts:
    """Counts of one version of a model.

    Attributes:
        last_ms: time of the last success, in milliseconds since 1970.
        executions: number of executions. Requests that are joined have one together.
        counts, ns: number and duration of each of `STAGES`.
    """

    last_ms: int = 0
    executions: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))

    def add(self, stage: str, duration_ns: int) -> None:
        """Count one."""
        self.counts[stage] += 1
        self.ns[stage] += duration_ns


class StageTimes:
    """Times of one request.

    Attributes:
        is_joined: whether it was a part of the execution of another one.
    """

    def __init__(self, started_ns: int) -> None:
        self.started_ns = self._last_ns = started_ns
        self.is_joined = False
        self.ns: dict[str, int] = {}

    def end(self, stage: str) -> None:
        """Note the end of a stage, which began with the end of the one before."""
        now_ns = time.perf_counter_ns()
        self.ns[stage], self._last_ns = now_ns - self._last_ns, now_ns

    def end_with_queue(self, stage: str, queued_ns: int) -> None:
        """Note the end of the last stage, and how long the execution has waited for a slot."""
        self.end(stage)
        self.ns["queue"] = queued_ns
        self.ns["compute_infer"] -= queued_ns


class ModelStatistics:
    """Statistics of the models that this process runs. Thread safe."""

    def __init__(self) -> None:
        self._models: LruDict[tuple[str, int], ModelCounts] = LruDict(_MAX_MODELS)
        self._lock = threading.Lock()

    def count(self, name: str, version: int, times: StageTimes, *, is_success: bool) -> None:
        """Count a request that has ended."""
        duration_ns = time.perf_counter_ns() - times.started_ns
        with self._lock:
            counts = self._models.get((name, version)) or ModelCounts()
            self._models.put((name, version), counts)
            counts.add("success" if is_success else "fail", duration_ns)
            if is_success:
                counts.last_ms = time.time_ns() // 10**6
                counts.executions += not times.is_joined
                for stage, spent_ns in times.ns.items():
                    counts.add(stage, spent_ns)

    def of(self, name: str, version: int) -> ModelCounts:
        """Return the counts of a version; zeros if it has had no request."""
        with self._lock:
            return self._models.get((name, version), ModelCounts())
