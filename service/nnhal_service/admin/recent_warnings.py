"""The last warnings and errors of the log, for operators."""

import logging
from collections import deque

from nnhal_service import log
from nnhal_service.admin.view import WarningSnapshot

MAX_WARNINGS = 50
"""Number of warnings that are kept."""
_MAX_TEXT = 500
"""Number of characters of a warning that are kept."""


class RecentWarnings(logging.Handler):
    """Handler of the log that keeps the last warnings and errors. Thread safe."""

    def __init__(self, worker: int) -> None:
        super().__init__(logging.WARNING)
        self._worker = worker
        self._recent: deque[WarningSnapshot] = deque(maxlen=MAX_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        text = log.fields_text(record)[:_MAX_TEXT]
        warning = WarningSnapshot(record.created, record.levelname, record.getMessage()[:_MAX_TEXT], text, self._worker)
        self._recent.append(warning)

    def list(self) -> tuple[WarningSnapshot, ...]:
        """Return the warnings, oldest first."""
        return tuple(self._recent)
