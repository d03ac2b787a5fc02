"""Observer of a service: shares snapshots between requests, and keeps the history."""

import logging
import threading
import time

from nnhal.admin.v1 import admin_pb2
from nnhal_service.log import event
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.web.history import LoadHistory

_FRESH_S = 1.0
"""Seconds for which a snapshot is shared, however many pages are open."""
_PERIOD_S = 5.0
"""Seconds between snapshots for the history. Pages that are open make it finer."""


class ServiceObserver:
    """Takes snapshots: for requests, and in a thread for the history."""

    def __init__(self, view: ServiceView) -> None:
        self.history = LoadHistory()
        self._view = view
        self._lock = threading.Lock()
        self._last: admin_pb2.ServiceSnapshot | None = None
        self._taken_at = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nnhal-observer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. May be called more than once."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def snapshot(self) -> admin_pb2.ServiceSnapshot:
        """Return the state of the service; at most 1 s old.

        Raises:
            Exception: the service cannot be asked.
        """
        with self._lock:
            if self._last is None or time.monotonic() - self._taken_at >= _FRESH_S:
                self._last = self._view.snapshot()
                self._taken_at = time.monotonic()
                self.history.add(self._last)
            return self._last

    def forget(self) -> None:
        """Have the next request take a new snapshot, because something has changed."""
        with self._lock:
            self._taken_at = time.monotonic() - _FRESH_S

    def readiness(self) -> str:
        """Return why the service cannot take clients, or "". It is at most 1 s old, however often it is asked for."""
        try:
            last = self.snapshot()
        except Exception:  # whatever happens to the service; the log has the reason
            return "the service does not answer"
        if not any(worker.state == "serving" for worker in last.workers):
            return f"no worker is serving; the service is {last.state}"
        return ""

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.snapshot()
            except Exception as error:  # the thread must go on whatever happens to the service
                event("snapshot-failed", logging.WARNING, error=repr(error))
            self._stopped.wait(_PERIOD_S)
