"""`nnhal bench` against a real service: every path and the engine, as a table, JSON, CSV and a page."""

import csv
import json
from pathlib import Path

import pytest

from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke

SHORT = ("--duration", "0.2", "--warmup", "0.05", "--rounds", "2")


@pytest.mark.slow
def test_all_paths(tmp_path: Path) -> None:
    files = ("--csv", tmp_path / "b.csv", "--html", tmp_path / "b.html", "--json")
    result = invoke("bench", DIGITS, "--path", "all", "--engine", *SHORT, *files)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    paths = ["same-machine", "same-machine-burst", "grpc", "grpc-burst"]
    assert [row["subject"]["path"] for row in rows] == ["engine", *paths]
    for row in rows:
        assert row["calls"] > 0 and row["errors"] == {} and row["calls_per_s"]["median"] > 0
        assert row["latency_us"]["p50"] <= row["latency_us"]["p99"] <= row["latency_us"]["max"]
        is_engine = row["subject"]["path"] == "engine"
        assert (row["ratio"] is None) == (row["split_us"] == {}) == (row["service_us"] is None) == is_engine
        assert is_engine or sum(row["split_us"].values()) > 0
    with (tmp_path / "b.csv").open() as file:
        assert [row["path"] for row in csv.DictReader(file)] == [row["subject"]["path"] for row in rows]
    assert "<svg" in (tmp_path / "b.html").read_text()


@pytest.mark.slow
def test_table_of_an_open_loop() -> None:
    result = invoke("bench", DIGITS, *SHORT, "--rate", "100", "--concurrency", "2")
    assert result.exit_code == 0, result.output
    assert "100/s from 2 clients" in result.stdout


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
