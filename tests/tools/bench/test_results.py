"""Summaries of samples, and the page that shows them."""

from pathlib import Path

import numpy as np
import pytest

from nnhal_tools.bench.load import Sample
from nnhal_tools.bench.page import write_html
from nnhal_tools.bench.results import LoadResult, Spread, summarize
from nnhal_tools.bench.specification import Level, Subject
from tests.tools.browser import needs_chromium, run_chromium

SUBJECT = Subject("grpc", "localhost:1", "<b>grpc</b>")


def sample(microseconds: list[float], calls_per_s: float, service_s: float | None = 2e-6) -> Sample:
    measured = np.array([[10e-6, 4e-6, 7e-6]])
    return Sample(np.array(microseconds) * 1e-6, measured, {"no": 1}, calls_per_s, 1e-6, service_s)


def test_summary() -> None:
    own = [sample([10, 20, 30], 100), sample([40, 60, 80], 200)]
    other = [sample([5, 10, 15], 1), sample([20, 20, 20], 1)]
    result = summarize(SUBJECT, Level(2), own, other)
    assert (result.calls, result.errors) == (6, {"no": 2})
    assert result.calls_per_s == Spread(150, 100, 200)
    assert result.ratio is not None and result.ratio.median == pytest.approx(2.5)
    assert (result.ratio.least, result.ratio.largest) == (pytest.approx(2.0), pytest.approx(3.0))
    assert result.latency_us["p50"] == pytest.approx(35) and result.latency_us["max"] == pytest.approx(80)
    assert result.split_us == pytest.approx({"device": 4, "driver": 3, "transfer": 3})
    assert result.client_us == pytest.approx(1) and result.service_us == pytest.approx(2)


def test_nothing_is_known_of_calls_that_failed() -> None:
    nothing = Sample(np.empty(0), np.empty((0, 3)), {"no": 5})
    result = summarize(SUBJECT, Level(1), [nothing], [nothing])
    assert (result.calls, result.latency_us, result.split_us) == (0, {}, {})
    assert result.ratio is None and result.service_us is None


def results() -> list[LoadResult]:
    rows = [summarize(SUBJECT, Level(clients), [sample([10.0 * clients] * 3, 90.0 * clients)]) for clients in (1, 2, 4)]
    return [*rows, summarize(SUBJECT, Level(8), [Sample(np.empty(0), np.empty((0, 3)))])]


@needs_chromium
@pytest.mark.slow
def test_page(tmp_path: Path) -> None:
    write_html(tmp_path / "page.html", "model", results())
    shown = run_chromium(tmp_path, tmp_path / "page.html", "", "--dump-dom").decode()
    assert shown.count("<figure>") == 4 and shown.count("<circle") == 12
    assert "&lt;b&gt;grpc&lt;/b&gt;, 4 clients: 360 calls/s, 40 us" in shown


def test_page_of_a_test_without_successful_calls(tmp_path: Path) -> None:
    write_html(tmp_path / "page.html", "model", results()[-1:])
    assert "<circle" not in (tmp_path / "page.html").read_text()
