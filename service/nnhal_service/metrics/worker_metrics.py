"""Metrics of one worker: what it records while it serves, and where its totals survive its end."""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nnhal.errors import HalError, exception_text, well_formed
from nnhal_service.log import event
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import METHOD_PATHS, CallMeter, error_label, is_counted
from nnhal_service.metrics.catalog import Metric
from nnhal_service.metrics.snapshot import FILE, Snapshot
from nnhal_service.replaced_files import replace_file

WRITE_S = 1.0
"""Seconds between two writes of the file. A worker that is killed loses the counts of this time."""


class WorkerMetrics:
    """Metrics of one worker. Thread safe. Close it at the end.

    Args:
        source: number of the start of the worker; 0 without a supervisor.
        folder: folder for the last snapshot, from which a supervisor learns the totals of a worker that has ended.
    """

    def __init__(self, source: int = 0, folder: Path | None = None) -> None:
        self.calls = CallMeter()
        self._source = source
        self._numbers = itertools.count(1)
        self._started = time.time()
        self._file = folder / FILE if folder is not None else None
        self._collectors: list[Callable[[Snapshot], None]] = []
        self._counts: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def count(self, metric: Metric, *labels: str, amount: int = 1) -> None:
        """Count events that are rare. The values of their labels must be bounded."""
        with self._lock:
            self._counts[metric, labels] += amount

    def count_error(self, method: str, error: HalError) -> None:
        """Count a call that has failed, by the full name of its RPC.

        One that was refused before its meter started, for example because its session is lost, also counts as a call.
        """
        name, status = method.removeprefix("nnhal.v1."), error_label(well_formed(error))
        self.count(catalog.RPC_ERRORS, name, status, error.limit)
        if name in METHOD_PATHS and not is_counted(error):
            self.calls.count_refused(METHOD_PATHS[name], status)

    def collect_with(self, collector: Callable[[Snapshot], None]) -> None:
        """Call a function for each snapshot, which adds its values."""
        self._collectors.append(collector)

    def snapshot(self) -> Snapshot:
        """Return the values of now."""
        snapshot = Snapshot(self._source, next(self._numbers))
        if not self._source:
            snapshot.add(catalog.START_TIME, self._started)
        self.calls.collect(snapshot)
        with self._lock:
            counts = dict(self._counts)
        for (metric, labels), value in counts.items():
            snapshot.add(metric, value, *labels)
        for collector in self._collectors:
            collector(snapshot)
        return snapshot

    def encoded(self) -> bytes:
        """Return the values of now as bytes, and save them, so that no later total is smaller."""
        with self._writing:
            data = self.snapshot().encode()
            if self._file is not None:
                with suppress(OSError):
                    replace_file(self._file, data)
        return data

    def start(self) -> None:
        """Begin to save the values regularly, if there is a folder."""
        if self._file is not None:
            self._thread = threading.Thread(target=self._run, name="nnhal-metrics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Save the values once more, and end the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self.encoded()

    def _run(self) -> None:
        while not self._stopped.wait(WRITE_S):
            try:
                self.encoded()
            except Exception as error:  # the thread must go on, for example without free descriptors
                event("metrics-not-written", logging.WARNING, why=exception_text(error))
