"""Structured logs: one line for each event, with fields that programs can parse.

12:00:01.234 INFO prepared session=s3 model=m7 status=NONE ms=4.1
"""

import logging
import sys
from typing import TextIO

_log = logging.getLogger("nnhal.service")


def event(name: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event. Values with spaces or unprintable characters are quoted."""
    if _log.isEnabledFor(level):
        _log.log(level, " ".join([name, *(f"{key}={_value(value)}" for key, value in fields.items())]))


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    plain = text and text.isprintable() and not any(c in " ='\"" for c in text)
    return text if plain else repr(text)


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the logs of service and driver to a stream, stderr by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%H:%M:%S"))
    for name in ("nnhal", "nnhal_driver"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers = [handler]
