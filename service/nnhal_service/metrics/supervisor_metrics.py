"""Metrics of a supervisor: the workers, and the totals of those that have ended."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nnhal.enums import ErrorKind
from nnhal_service.metrics import catalog
from nnhal_service.metrics.catalog import METRICS, Metric
from nnhal_service.metrics.snapshot import FILE, Labels, Snapshot
from nnhal_service.replaced_files import replace_file

RESTART_REASONS = ("crash", "hang", "start", "exit", "reload")
"""Why workers are replaced, as labels."""
MAX_LABELS = 5000
"""Number of label sets of a metric, after which those of further models count as other ones."""
_MAX_BYTES = 2**24
"""Largest file of a worker that is read."""
_LABELS_OF_OTHERS = {"model": "other", "name": "", "version": ""}


class SupervisorMetrics:
    """Metrics of one supervisor, in a file that the admin process reads. Close it at the end."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nnhal-metrics-"))
        self.file = self._folder / FILE
        self._total = Snapshot()
        self._total.add(catalog.START_TIME, time.time())
        for reason in RESTART_REASONS:  # else the first one would not be an increase
            self._total.add(catalog.WORKER_RESTARTS, 0, reason)
        for kind in (ErrorKind.UNAUTHENTICATED, ErrorKind.PERMISSION_DENIED):
            self._total.add(catalog.AUTHENTICATION_FAILURES, 0, kind.name.lower())
        for level in ("warning", "error"):  # so that the sum over all events exists
            self._total.add(catalog.LOG_LINES, 0, level, "message")
        self._states: Mapping[str, int] = {}
        self._has_changed = False
        self._write()

    def show_workers(self, states: Mapping[str, int]) -> None:
        """Report the number of workers in each state. Call it regularly."""
        if states != self._states or self._has_changed:
            self._states = dict(states)
            self._total.values[catalog.WORKERS.name] = {(state,): float(n) for state, n in states.items()}
            self._write()

    def count(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Count an event, which is written with the workers. The values of its labels must be bounded."""
        self._total.add(metric, amount, *labels)
        self._has_changed = True

    def add_backends(self, backends: Iterable[str]) -> None:
        """Count no suspects so far for the backends of a worker that has started."""
        for backend in backends:
            self._total.add(catalog.SUSPECTS, 0, backend)
        self._write()

    def count_suspect(self, backend: str) -> None:
        """Count a model that may have caused the crash of a worker, in the code of a backend; "" if unknown."""
        self._total.add(catalog.SUSPECTS, 1, backend)
        self._write()

    def add_process(self, counts: Collection[tuple[str, Sequence[str], float]], gauges: Mapping[str, float]) -> None:
        """Add what another process has counted, and show its gauges. Unknown metrics are ignored.

        Args:
            counts: names of metrics, labels, and what to add.
            gauges: values by name of the metric.
        """
        for name, labels, amount in counts:
            if name in METRICS:
                known = self._total.values.get(name, {})
                self._total.add(METRICS[name], amount, *_bound_labels(name, tuple(labels), known, len(known) + 1))
        for name, value in gauges.items():
            if name in METRICS:
                self._total.values[name] = {(): float(value)}
        if counts or gauges:
            self._write()

    def add_ended_worker(self, source: int, folder: Path, reason: str) -> None:
        """Count a worker that has ended, and add its totals.

        Args:
            source: number of its start.
            folder: its folder, which still exists. What is in it may be damaged.
            reason: why it ended; "" if it is not replaced.
        """
        if reason:
            self._total.add(catalog.WORKER_RESTARTS, 1, reason)
        with suppress(OSError, ValueError):  # it ended before it had anything to count, or its file is damaged
            snapshot = Snapshot.decode(_read(folder / FILE))
            snapshot.includes = set()
            self._bound(snapshot)
            self._total.merge(snapshot, gauges=False)
        self._total.includes.add(source)
        self._write()

    def _bound(self, snapshot: Snapshot) -> None:
        """Replace models by `other` where the totals have too many labels already."""
        bounded = Snapshot()
        for name, values in snapshot.values.items():
            known = self._total.values.get(name, {})
            for labels, value in values.items():
                bounded.add(METRICS[name], value, *_bound_labels(name, labels, known, len(known) + len(values)))
        for name, histograms in snapshot.histograms.items():
            seen = self._total.histograms.get(name, {})
            for labels, histogram in histograms.items():
                other = _bound_labels(name, labels, seen, len(seen) + len(histograms))
                bounded.add_histogram(METRICS[name], histogram, *other)
        snapshot.values, snapshot.histograms = bounded.values, bounded.histograms

    def _write(self) -> None:
        self._has_changed = False
        with suppress(OSError):
            replace_file(self.file, self._total.encode())

    def close(self) -> None:
        """Remove the file."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _bound_labels(name: str, labels: Labels, known: Container[Labels], total: int) -> Labels:
    """Return the labels of a value; without those of its model if they are new, and there would be too many."""
    names = METRICS[name].labels
    if total <= MAX_LABELS or labels in known or "model" not in names:
        return labels
    return tuple(_LABELS_OF_OTHERS.get(label, value) for label, value in zip(names, labels, strict=True))


def read_totals(path: Path) -> Snapshot:
    """Return what the file of a supervisor contains; nothing if it cannot be read."""
    try:
        return Snapshot.decode(_read(path))
    except (OSError, ValueError):
        return Snapshot()


def _read(path: Path) -> bytes:
    """Return the contents of a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError(f"{path} is not a file of metrics")
        return file.read(_MAX_BYTES)
