"""The last warnings and errors of the log, for operators."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TypedDict

from nnhal_service import log
from nnhal_service.metrics import catalog

NO_WORKER = -1
"""Number of the worker in warnings of other processes."""
MAX_WARNINGS = 50
"""Number of warnings that are kept."""
_MAX_TEXT = 500
"""Number of characters of a warning that are kept."""


class RecentWarning(TypedDict):
    """Fields of a `WarningSnapshot` of nnhal.admin.v1. The supervisor does not load protobuf."""

    at: float
    level: str
    event: str
    text: str
    worker: int


class RecentWarnings(logging.Handler):
    """Handler of the log that counts warnings and errors, and keeps the last ones. Thread safe.

    Args:
        count: counts an event, by its metric and labels.
    """

    def __init__(self, worker: int, count: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._count = count
        self._worker = worker
        self._recent: deque[RecentWarning] = deque(maxlen=MAX_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Count and keep a record."""
        self._count(catalog.LOG_LINES, record.levelname.lower(), log.event_name(record) or "message")
        self._recent.append(
            {
                "at": record.created,
                "level": record.levelname,
                "event": record.getMessage()[:_MAX_TEXT],
                "text": log.fields_text(record)[:_MAX_TEXT],
                "worker": self._worker,
            }
        )

    def list(self) -> list[RecentWarning]:
        """Return the warnings, oldest first."""
        return list(self._recent)
