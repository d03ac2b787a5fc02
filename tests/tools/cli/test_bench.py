"""`nnhal bench` against a real service: every path and the engine, as a table, JSON, CSV and a page."""

import csv
import json
from pathlib import Path

import pytest

from nnhal.cpu import available_cpus
from nnhal_tools.bench.results import LoadResult, Spread
from nnhal_tools.bench.specification import ENGINE, Level, Subject
from nnhal_tools.cli.bench import _report
from tests.nnhal.litert.models import several_signatures
from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke

SHORT = ("--duration", "0.2", "--warmup", "0.05", "--rounds", "2")


@pytest.mark.slow
def test_all_paths(tmp_path: Path) -> None:
    files = ("--csv", tmp_path / "b.csv", "--html", tmp_path / "b.html", "--json")
    result = invoke("bench", DIGITS, "--path", "all", "--engine", *SHORT, *files)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    engine_count = len({1, available_cpus()})
    assert [row["subject"]["threads"] for row in rows[:engine_count]] == sorted({1, available_cpus()})
    paths = ["same-machine", "same-machine-burst", "grpc", "grpc-burst"]
    assert [row["subject"]["path"] for row in rows] == ["engine"] * engine_count + paths
    assert rows[0]["ratio"] is None and all(row["ratio"] for row in rows[1:])
    for row in rows:
        assert row["calls"] > 0 and row["errors"] == {} and row["calls_per_s"]["median"] > 0
        assert row["latency_us"]["p50"] <= row["latency_us"]["p99"] <= row["latency_us"]["max"]
        is_engine = row["subject"]["path"] == "engine"
        assert (row["split_us"] == {}) == (row["service_us"] is None) == is_engine
        assert is_engine or sum(row["split_us"].values()) > 0
    with (tmp_path / "b.csv").open() as file:
        assert [row["path"] for row in csv.DictReader(file)] == [row["subject"]["path"] for row in rows]
    assert "<svg" in (tmp_path / "b.html").read_text()


@pytest.mark.slow
def test_signature_of_a_model_is_measured(tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(several_signatures())
    result = invoke("bench", model, "--signature", "add", "--engine", *SHORT, "--rounds", "1", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    assert [row["errors"] for row in rows] == [{}] * len(rows) and all(row["calls"] > 0 for row in rows)
    assert_fails(invoke("bench", model, "--signature", "none"), 2, "has no signature 'none'")
    named = invoke("bench", "name", "--target", UNREACHABLE, "--signature", "add")
    assert_fails(named, 2, "--signature needs the file of the model, not its name")


@pytest.mark.slow
def test_table_of_an_open_loop() -> None:
    result = invoke("bench", DIGITS, *SHORT, "--rate", "100", "--concurrency", "2")
    assert result.exit_code == 0, result.output
    assert "100/s from 2 clients" in result.stdout


def result_of(path: str, p50_us: float, ratio: float | None) -> LoadResult:
    """Return a result with a median latency and a ratio to the first subject."""
    one = Spread(1.0, 0.5, 2.0)
    latency = {"p50": p50_us, "p90": 2 * p50_us, "p99": 3 * p50_us, "max": 234_567.0}
    split = {} if path == ENGINE else {"device": 20.0, "driver": 30.0, "transfer": 23_456.0}
    subject = Subject(path, "", "LiteRT, 2 threads" if path == ENGINE else path)
    service_us = None if path == ENGINE else 5.0
    spread = None if ratio is None else Spread(ratio, ratio / 2, ratio * 2)
    return LoadResult(subject, Level(16), 100, {}, one, latency, split, 7.0, service_us, spread)


def test_large_ratio_of_a_small_model_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    alone, served = result_of(ENGINE, 2, None), result_of("same-machine", 100, 50)
    _report([alone, served], Path("tiny.tflite"), None, None, as_json=False)
    assert "LiteRT alone needs 2 us for this model. A service adds at least 98 us" in capsys.readouterr().out
    _report([alone, result_of("same-machine", 3, 1.5)], Path("large.tflite"), None, None, as_json=False)
    assert "LiteRT alone" not in capsys.readouterr().out


def test_tables_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    results = [result_of(ENGINE, 12_345, None), result_of("same-machine-burst", 31_234, 2.53)]
    _report(results, Path("model.tflite"), None, None, as_json=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "LiteRT alone" not in line]
    assert max(map(len, lines)) <= 80 and any("┃" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--path", "carrier-pigeon"], "carrier-pigeon"),
        (["--concurrency", "0"], "--concurrency"),
        (["--duration", "0"], "--duration"),
        (["--csv", "/nowhere/b.csv"], "/nowhere"),
    ],
)
def test_invalid_options(options: list[str], word: str) -> None:
    assert_fails(invoke("bench", DIGITS, *options), 2, word)


def test_unreachable_service() -> None:
    assert_fails(invoke("bench", DIGITS, "--target", UNREACHABLE), 2, UNREACHABLE)
