"""Structured logs: one line for each event, with fields that programs can parse, as text or as JSON.

2026-01-31T12:00:01.234Z INFO prepared session=s3 model=m7 cache=saved ms=4.100
{"time": "2026-01-31T12:00:01.234Z", "level": "INFO", "event": "prepared", "session": "s3", "ms": 4.1}
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from nnhal_service.request_id import current_id

_log = logging.getLogger("nnhal.service")
_audit_log = logging.getLogger("nnhal.audit")
_audit_log.setLevel(logging.INFO)
_FIELDS = "nnhal_fields"
"""Attribute of the log records of events."""
_OMITTED = "nnhal_omitted"
"""Attribute of log records: the number of records of their kind that were left out before them."""
_NO_FIELDS: Mapping[str, object] = {}
_LOGGERS = ("nnhal", "nnhal_driver")


def event(name: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event."""
    if _log.isEnabledFor(level):
        _log.log(level, name, extra={_FIELDS: fields})


def audit(action: str, **fields: object) -> None:
    """Log an action of an operator, whatever the level of the log."""
    _audit_log.log(logging.INFO, "audit", extra={_FIELDS: {"action": action, **fields}})


class RepeatedEvent:
    """Event that clients can cause as often as they like: at most one line each `INTERVAL_S`. Thread safe.

    A line has the number of events that were left out since the line before.
    """

    INTERVAL_S = 1.0

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._omitted = 0

    def log(self, **fields: object) -> None:
        """Log the event, or count it."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_s:
                self._omitted += 1
                return
            self._next_s = now_s + self.INTERVAL_S
            omitted, self._omitted = self._omitted, 0
        event(self._name, logging.INFO, **fields, **({"omitted": omitted} if omitted else {}))


class RateLimit(logging.Filter):
    """Filter that admits at most `LINES_PER_S` lines of one kind each second: of one event, or of one message text.

    The next line of this kind has the number of lines that were left out. Thread safe.
    """

    LINES_PER_S = 200
    _UNLIMITED = frozenset({"audit", "worker-stack"})
    _MAX_KINDS = 1000

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seconds: dict[object, tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if record.msg in self._UNLIMITED:
            return True
        second = int(time.monotonic())
        with self._lock:
            since, lines, omitted = self._seconds.get(record.msg, (second, 0, 0))
            if since != second:
                since, lines = second, 0
            if lines >= self.LINES_PER_S:
                self._seconds[record.msg] = (since, lines, omitted + 1)
                return False
            if len(self._seconds) >= self._MAX_KINDS:
                self._seconds.clear()
            self._seconds[record.msg] = (since, lines + 1, 0)
        setattr(record, _OMITTED, omitted)
        return True


class EventFormatter(logging.Formatter):
    """Base of the formatters.

    Args:
        fields: fields of every line.
    """

    def __init__(self, fields: Mapping[str, object] = _NO_FIELDS) -> None:
        super().__init__()
        self._common = fields

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Return the fields of the line of a record."""
        own: dict[str, object] = {**getattr(record, _FIELDS, _NO_FIELDS), **self._common}
        if "request" not in own and (request := current_id()):
            own["request"] = request
        if omitted := getattr(record, _OMITTED, 0):
            own["omitted"] = omitted
        return own


class TextFormatter(EventFormatter):
    """Formatter of lines for people. Values with spaces or unprintable characters are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and the traceback of an error."""
        fields = "".join(f" {key}={_text(value)}" for key, value in self.fields(record).items())
        return f"{_time(record)} {record.levelname} {super().format(record)}{fields}"


class JsonFormatter(EventFormatter):
    """Formatter of one JSON object a line. Messages that are not events have `message` instead of `event`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        entry: dict[str, object] = {"time": _time(record), "level": record.levelname}
        entry["event" if event_name(record) else "message"] = record.getMessage()
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        fields = {key: _json(value) for key, value in self.fields(record).items() if key not in entry}
        return json.dumps(entry | fields)


def event_name(record: logging.LogRecord) -> str:
    """Return the event of a record; "" if it is a message."""
    return record.getMessage() if hasattr(record, _FIELDS) else ""


def fields_text(record: logging.LogRecord) -> str:
    """Return the fields of an event as in a line for people."""
    fields: Mapping[str, object] = getattr(record, _FIELDS, _NO_FIELDS)
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items())


FORMATTERS: Mapping[str, type[EventFormatter]] = {"text": TextFormatter, "json": JsonFormatter}


def configure(
    level: str = "INFO",
    format_: str = "text",
    stream: TextIO | None = None,
    fields: Mapping[str, object] = _NO_FIELDS,
) -> None:
    """Send the logs of service and driver to a stream, stderr by default.

    Args:
        level: lowest severity to log.
        format_: key of FORMATTERS.
        stream: receives the lines.
        fields: fields of each line, for example the number of the worker.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[format_](fields))
    handler.addFilter(RateLimit())
    for name in _LOGGERS:
        logging.getLogger(name).handlers = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Change the lowest severity to log."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(level)


def watch(handler: logging.Handler) -> None:
    """Pass the lines of service and driver to another handler too. Call it after `configure`."""
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(handler)


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _text(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    plain = text and text.isprintable() and not any(c in " ='\"" for c in text)
    return text if plain else repr(text)


def _json(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value if isinstance(value, bool | int) else str(value)
