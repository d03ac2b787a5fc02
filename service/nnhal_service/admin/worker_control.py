"""Commands that the admin process sends to a worker."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from nnhal_service import log
from nnhal_service.admin.control import ControlServer
from nnhal_service.admin.recent_warnings import RecentWarnings
from nnhal_service.admin.stacks import all_stacks
from nnhal_service.admin.view import AdminError
from nnhal_service.admin.worker_report import WorkerReporter
from nnhal_service.log import event
from nnhal_service.sessions.session_registry import SessionRegistry

ENDED_BY_OPERATOR = "ended by an operator"
"""Reason that the client of a session learns."""


class DrainableServer(Protocol):
    """The part of a server that the commands use."""

    def drain(self) -> None:
        """Accept no more sessions, and send the clients of the open ones elsewhere."""

    def resume(self) -> None:
        """Undo `drain`."""


class WorkerControl:
    """Control of one worker. Close it when the worker stops.

    Args:
        folder: private folder of the worker.
        server: its server.
        reporter: reports on it.
        sessions: its sessions.
        metrics: returns its metrics as bytes.
        on_change: called with whether the worker is drained, when that changes.
    """

    def __init__(
        self,
        folder: Path,
        server: DrainableServer,
        reporter: WorkerReporter,
        sessions: SessionRegistry,
        metrics: Callable[[], bytes],
        on_change: Callable[[bool], None],
    ) -> None:
        self._drainable = server
        self._reporter = reporter
        self._sessions = sessions
        self._on_change = on_change
        self._drained = False
        self._stopping = False
        self._lock = threading.Lock()
        self._warnings = RecentWarnings(reporter.slot)
        log.watch(self._warnings)
        self._server = ControlServer(
            folder,
            {
                "report": lambda _: self._report(),
                "abilities": lambda _: reporter.abilities(),
                "metrics": lambda _: metrics(),
                "stacks": lambda _: all_stacks().encode(),
                "drain": lambda _: self.drain(),
                "resume": lambda _: self._resume(),
                "end-session": self._end_session,
                "log-level": self._set_log_level,
            },
        )

    def _report(self) -> bytes:
        is_leaving = self._drained or self._stopping
        state = "serving" if not is_leaving else "draining" if self._sessions.count() else "drained"
        return self._reporter.report(state, log.level(), self._warnings.list()).to_json()

    def drain(self) -> bytes:
        """Drain the worker, if it is not drained."""
        with self._lock:
            if not self._drained and not self._stopping:
                self._drained = True
                self._on_change(True)  # first, so that no client is sent here again
                self._drainable.drain()
                event("drained")
        return b""

    def _resume(self) -> bytes:
        with self._lock:
            if self._stopping:
                raise AdminError("the worker is stopping")
            if self._drained:
                self._drained = False
                self._drainable.resume()
                self._on_change(False)
                event("resumed")
        return b""

    def _end_session(self, arguments: Mapping[str, Any]) -> bytes:
        session = self._reporter.find_session(arguments["session"])
        if session is None:
            raise AdminError(f"there is no session {arguments['session']!r}")
        self._sessions.end(session, ENDED_BY_OPERATOR)
        return b""

    def _set_log_level(self, arguments: Mapping[str, Any]) -> bytes:
        log.set_level(arguments["level"])
        return b""

    def begin_stop(self) -> None:
        """Note that the worker stops. It still answers, but does not change any more."""
        with self._lock:
            self._stopping = True

    def close(self) -> None:
        """Accept no more commands."""
        self._server.close()
