"""Logs as text and as JSON."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from nnhal_service import log

REASON = "a 'b'\nc"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def _unchanged_loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("nnhal", "nnhal_driver")]
    before = [(logger.level, logger.handlers) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers = handlers


def logged(format_: str, level: str = "INFO") -> io.StringIO:
    """Log two events, a message of the driver and an exception, and return the stream."""
    stream = io.StringIO()
    log.configure(level, format_, stream)
    log.event("prepared", session="s1", ms=1.23456, objects=3, ok=True, reason=REASON)
    log.event("not-warm", logging.WARNING)
    driver = logging.getLogger("nnhal_driver.test")
    driver.warning("%s fails", "Npu")
    try:
        raise ValueError("broken")
    except ValueError:
        driver.exception("an internal error")
    return stream


def test_text_has_a_line_for_each_event() -> None:
    lines = logged("text").getvalue().splitlines()
    times = [re.match(TIME, line) for line in lines]
    assert [bool(time) for time in times[:4]] == [True] * 4
    assert [line[25:] for line in lines[:4]] == [
        f"INFO prepared session=s1 ms=1.235 objects=3 ok=True reason={REASON!r}",
        "WARNING not-warm",
        "WARNING Npu fails",
        "ERROR an internal error",
    ]
    assert lines[-1] == "ValueError: broken"


def test_json_has_an_object_for_each_event() -> None:
    prepared, warning, message, error = map(json.loads, logged("json").getvalue().splitlines())
    assert re.fullmatch(TIME, prepared.pop("time")) and re.fullmatch(TIME, error["time"])
    assert prepared == {
        "level": "INFO", "event": "prepared", "session": "s1", "ms": 1.235, "objects": 3, "ok": True,
        "reason": REASON,
    }  # fmt: skip
    assert (warning["level"], warning["event"]) == ("WARNING", "not-warm")
    assert message["message"] == "Npu fails" and "event" not in message
    assert error["message"] == "an internal error" and error["traceback"].endswith("ValueError: broken")


def test_events_below_the_level_are_not_logged() -> None:
    assert "prepared" not in logged("text", "WARNING").getvalue()


def test_repeated_event_is_logged_once_for_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("nnhal_service.log.time.monotonic", lambda: now)
    repeated = log.RepeatedEvent("data-refused")
    logger = logging.getLogger("nnhal.service")
    with monkeypatch.context() as patch:
        logged: list[dict[str, object]] = []
        patch.setattr(logger, "isEnabledFor", lambda _: True)
        patch.setattr(logger, "log", lambda *_, extra: logged.append(dict(extra["nnhal_fields"])))
        for _ in range(640):
            repeated.log(reason="user 1")
        now += 1
        repeated.log(reason="user 2")
        repeated.log(reason="user 3")
    assert logged == [{"reason": "user 1"}, {"reason": "user 2", "omitted": 639}]


def test_lines_of_one_kind_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("nnhal_service.log.time.monotonic", lambda: now)
    stream = io.StringIO()
    log.configure("INFO", "json", stream)
    driver = logging.getLogger("nnhal_driver.test")
    for number in range(500):
        log.event("prepared", number=number)
        driver.warning("backend %s fails", number)
        log.event("worker-stack", number=number)
    now += 1
    log.event("prepared", number=500)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("event", "message") for line in lines].count("worker-stack") == 500
    assert [line.get("event", "message") for line in lines].count("message") == log.RateLimit.LINES_PER_S
    prepared = [line for line in lines if line.get("event") == "prepared"]
    assert len(prepared) == log.RateLimit.LINES_PER_S + 1
    assert prepared[-1]["omitted"] == 500 - log.RateLimit.LINES_PER_S and "omitted" not in prepared[-2]
