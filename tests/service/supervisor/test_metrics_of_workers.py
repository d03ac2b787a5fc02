"""Metrics of a service with workers that come and go: the HTTP port sums them up, and no counter goes back."""

import http.client
import math
import os
import re
import signal
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import nnhal
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids

TIMEOUT_S = 60
CALLS = 3
ONE = np.ones(2, np.float32)


class Scraper:
    """Prometheus of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        assert wait_until(lambda: self._port() > 0, TIMEOUT_S)
        self.totals: dict[str, float] = {}

    def _port(self) -> int:
        found = re.findall(r"http-serving .*port=(\d+)", self._service.log.read_text())
        return int(found[-1]) if found else 0

    def get(self, accept: str = "") -> str:
        """Return a scrape. The admin process is replaced with a reload, so it may need several attempts."""
        answers: list[str] = []

        def attempt() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", self._port(), timeout=TIMEOUT_S)
            with suppress(ConnectionError), closing(connection):
                connection.request("GET", "/metrics", headers={"Accept": accept})
                response = connection.getresponse()
                assert response.status == 200
                answers.append(response.read().decode())
            return bool(answers)

        assert wait_until(attempt, TIMEOUT_S)
        return answers[0]

    def scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return all samples. Counters must not have gone back since the scrape before."""
        families = list(parse_text(self.get()))
        samples = defaultdict[str, list[float]](list)
        for family in families:
            for sample in family.samples:
                if sample.name.endswith(("_total", "_count")):
                    samples[sample.name].append(sample.value)
        totals = {name: math.fsum(values) for name, values in samples.items()}
        for name, total in self.totals.items():
            assert totals.get(name, 0) >= total, f"{name} went back from {total} to {totals.get(name, 0)}"
        self.totals = totals
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with some labels."""
        samples = self.scrape().items()
        return sum(value for (each, found), value in samples if each == name and set(labels.items()) <= found)


def execute(target: str) -> None:
    """Execute from two clients at once, which two workers serve."""
    with nnhal.connect(target) as first, nnhal.connect(target) as second:
        for device in (first, second):
            prepared = device.prepare(TWICE).result(TIMEOUT_S)
            for _ in range(CALLS):
                prepared.execute([ONE, ONE])


@pytest.mark.slow
def test_counters_outlive_workers_and_the_admin_process(tmp_path: Path) -> None:
    options = ("--workers", "2", "--http-listen", "127.0.0.1:0", "--backends", "CpuRef")
    service = start_service(tmp_path, *options, NNHAL_STATE_DIR=str(tmp_path / "state"))
    try:
        scraper = Scraper(service)
        execute(service.target)
        assert scraper.value("nnhal_calls_total", path="data_socket", status="ok") == 2 * CALLS
        assert scraper.value("nnhal_calls_total", path="prepare", status="ok") == 2
        assert scraper.value("nnhal_workers", state="serving") == 2
        parse: Any = parse_openmetrics
        names = {family.name for family in parse(scraper.get("application/openmetrics-text"))}
        assert names > {"nnhal_calls", "nnhal_call_duration_seconds"}

        os.kill(worker_pids(service.process.pid)[0], signal.SIGKILL)
        assert wait_until(lambda: scraper.value("nnhal_worker_restarts_total", reason="exit") == 1, TIMEOUT_S)
        assert wait_until(lambda: scraper.value("nnhal_workers", state="serving") == 2, TIMEOUT_S)
        assert scraper.value("nnhal_calls_total", path="data_socket", status="ok") == 2 * CALLS

        execute(service.target)
        service.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: scraper.value("nnhal_worker_restarts_total", reason="reload") == 2, TIMEOUT_S)
        assert scraper.value("nnhal_calls_total", path="data_socket", status="ok") == 4 * CALLS
        assert scraper.value("nnhal_sessions_opened_total") >= 4
    finally:
        assert stop_service(service) == 0, service.log.read_text()
