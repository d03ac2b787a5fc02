"""Commands that the admin process sends to a worker."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnhal_service import log
from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.control import ControlServer
from nnhal_service.operating.admin.recent_warnings import RecentWarnings
from nnhal_service.operating.admin.stacks import all_stacks
from nnhal_service.operating.admin.worker_report import WorkerReporter
from nnhal_service.recording.rules import RULES
from nnhal_service.server import Server

ENDED_BY_OPERATOR = "ended by an operator"
"""Reason that the client of a session learns."""


class WorkerControl:
    """Control of one worker. Close it when the worker stops.

    Args:
        on_change: called with whether the worker is drained, when that changes.
    """

    def __init__(
        self,
        folder: Path,
        server: Server,
        reporter: WorkerReporter,
        on_change: Callable[[bool], None],
    ) -> None:
        self._server = server
        self._reporter = reporter
        self._on_change = on_change
        self._drained = False
        self._stopping = False
        self._lock = threading.Lock()
        self._warnings = RecentWarnings(reporter.slot, server.metrics.count)
        log.watch(self._warnings)
        self._control = ControlServer(
            folder,
            {
                "report": lambda _: self._report(),
                "abilities": lambda _: reporter.abilities().SerializeToString(),
                "metrics": lambda _: server.metrics.encoded(),
                "stacks": lambda _: all_stacks().encode(),
                "drain": lambda _: self.drain(),
                "resume": lambda _: self._resume(),
                "end-session": self._end_session,
                "log-level": self._set_log_level,
                **dict.fromkeys(RULES, self._set_rules),
            },
        )

    def _report(self) -> bytes:
        is_leaving = self._drained or self._stopping
        state = "serving" if not is_leaving else "draining" if self._server.sessions.count() else "drained"
        return self._reporter.report(state, self._warnings.list()).SerializeToString()

    def drain(self) -> bytes:
        """Drain the worker, if it is not drained."""
        with self._lock:
            if not self._drained and not self._stopping:
                self._drained = True
                self._on_change(True)  # first, so that no client is sent here again
                self._server.drain()
                event("drained")
        return b""

    def _resume(self) -> bytes:
        with self._lock:
            if self._stopping:
                raise AdminError("the worker is stopping")
            if self._drained:
                self._drained = False
                self._server.resume()
                self._on_change(False)
                event("resumed")
        return b""

    def _end_session(self, arguments: Mapping[str, Any]) -> bytes:
        session = self._reporter.find_session(arguments["session"])
        if session is None:
            raise AdminError(f"there is no session {arguments['session']!r}")
        self._server.sessions.end(session, ENDED_BY_OPERATOR)
        return b""

    def _set_log_level(self, arguments: Mapping[str, Any]) -> bytes:
        log.set_level(arguments["level"])
        return b""

    def _set_rules(self, arguments: Mapping[str, Any]) -> bytes:
        self._server.recorder.switch(RULES[arguments["command"]].read(arguments["rules"]))
        return b""

    def begin_stop(self) -> None:
        """Note that the worker stops. It still answers, but does not change any more."""
        with self._lock:
            self._stopping = True

    def close(self) -> None:
        """Accept no more commands."""
        self._control.close()
