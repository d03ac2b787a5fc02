"""The last warnings and errors of the log, for operators."""

import logging
from collections import deque
from typing import TypedDict

from nnhal_service import log

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
    """Handler of the log that keeps the last warnings and errors. Thread safe."""

    def __init__(self, worker: int) -> None:
        super().__init__(logging.WARNING)
        self._worker = worker
        self._recent: deque[RecentWarning] = deque(maxlen=MAX_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
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
