"""Output of engines and plug-ins: as events, at most once a minute for equal lines, complete after a crash."""

import itertools
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nnhal
from nnhal_service.supervisor import worker_output
from nnhal_service.supervisor.worker_output import WorkerOutput
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids

Line = tuple[int, str]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """Return the list of the lines that are logged, with their severities."""
    logged: list[Line] = []

    def record(name: str, level: int, *, worker: int, line: str, omitted: int = 0) -> None:
        assert (name, worker) == ("worker-output", 3)
        logged.append((level, f"{line} +{omitted}" if omitted else line))

    monkeypatch.setattr(worker_output, "event", record)
    return logged


@contextmanager
def output() -> Iterator[tuple[WorkerOutput, int]]:
    """Return the output of a worker, and the descriptor that the worker writes to."""
    received = WorkerOutput(3)
    written = os.dup(received.write_end)
    received.close_write_end()
    try:
        yield received, written
    finally:
        received.close()


def test_lines_stay_whole_and_have_severities(lines: list[Line]) -> None:
    with output() as (received, written):
        os.write(written, b"INFO: Created")
        assert received.read() and lines == []
        os.write(
            written, b" a delegate.\nE1123 01:33:43.041630   23020 chttp2.cc:1403] goaway\nWARNING: slow\n\n\xff\n"
        )
        assert received.read()
        os.write(written, b"terminate called")
        os.close(written)
        assert not received.read()
    assert lines == [
        (logging.INFO, "INFO: Created a delegate."),
        (logging.ERROR, "E1123 01:33:43.041630   23020 chttp2.cc:1403] goaway"),
        (logging.WARNING, "WARNING: slow"),
        (logging.INFO, "\\xff"),
        (logging.INFO, "terminate called"),
    ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list with the time in seconds."""
    now = [1000.0]
    monkeypatch.setattr("nnhal_service.supervisor.worker_output.time.monotonic", lambda: now[0])
    return now


def test_equal_lines_are_counted(lines: list[Line], clock: list[float]) -> None:
    with output() as (received, written):
        os.write(written, b"again\n" * 500 + b"other\n")
        received.read()
        clock[0] += 61
        os.write(written, b"again\n")
        os.close(written)
    assert lines == [(logging.INFO, "again"), (logging.INFO, "other"), (logging.INFO, "again +499")]


def test_lines_that_clients_cause_are_limited(lines: list[Line], clock: list[float]) -> None:
    """One client connects often with garbage. The output of others still appears."""
    garbage = "E1123 01:33:43.{0:06}   23020 ssl.cc:1403] handshake failed: ipv6:[fe80::{0:x}]:{0}\n"
    with output() as (received, written):
        os.write(written, "".join(map(garbage.format, range(1000, 1500))).encode())
        os.write(written, b"a plug-in says this\n")
        received.read()
        clock[0] += 61
        os.write(written, garbage.format(2000).encode())
        os.close(written)
    texts = [text for _, text in lines]
    assert len(texts) == 22
    assert "a plug-in says this" in texts
    assert texts[-1].endswith("2000 +480")


def test_all_lines_together_are_limited(lines: list[Line], clock: list[float]) -> None:
    texts = ["".join(letters) for letters in itertools.product("ghijklmnopqrstuvwxyz", repeat=3)]
    with output() as (received, written):
        os.write(written, "\n".join([*texts, ""]).encode())
        received.read()
        assert len(lines) == 600
        clock[0] += 61
        os.write(written, b"end\n")
        os.close(written)
    assert lines[-1] == (logging.INFO, f"end +{len(texts) - 600}")


def test_closed_output_is_not_read(lines: list[Line]) -> None:
    """The supervisor may close it after it has learned that there is something to read."""
    with output() as (received, written):
        os.close(written)
    assert received.read()


def test_long_lines_are_cut(lines: list[Line]) -> None:
    with output() as (received, written):
        os.write(written, b"x" * 10000 + b"\n")
        received.read()
        os.close(written)
    assert sum(len(line) for _, line in lines) <= 10000 and max(len(line) for _, line in lines) <= 4096


@pytest.mark.slow
def test_all_output_is_in_the_format_of_the_log(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--log-format", "json", "--http-listen", "127.0.0.1:0", "--probe")
    try:
        (worker,) = worker_pids(service.process.pid)[-1:]
        with Path(f"/proc/{worker}/fd/2").open("wb", buffering=0) as stderr:
            stderr.write(b"a plug-in says this\n")
        assert wait_until(lambda: service.logged('"event": "worker-output", "worker": 0, "line": "a plug-in says'), 60)
        assert wait_until(lambda: service.logged('"event": "http-serving"'), 60)
        (serving,) = (line for line in read_lines(service) if line.get("event") == "http-serving")
        with socket.create_connection(("127.0.0.1", serving["port"])) as connection:
            connection.sendall(b"nonsense\r\n\r\n")  # of which the HTTP library warns
        assert wait_until(lambda: service.logged('"event": "worker-output", "process": "admin", "line": "Invalid'), 60)
        with nnhal.connect(service.target) as device:
            device.prepare(TWICE).result(60)
        assert wait_until(lambda: service.logged('"event": "probed"'), 60)
    finally:
        assert stop_service(service) == 0
    assert all("time" in line and "level" in line for line in read_lines(service))


def read_lines(service: Service) -> list[dict[str, Any]]:
    """Return the lines of the log, each of which is an object."""
    return [json.loads(line) for line in service.log.read_text().splitlines()]
