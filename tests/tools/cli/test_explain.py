"""`nnhal explain`: operators, times and the graph."""

import json
from pathlib import Path

import pytest

from tests.tools.cli.command import DIGITS, assert_fails, invoke


def test_each_operator_is_explained(target: str) -> None:
    result = invoke("explain", DIGITS, "--target", target, "--json")
    assert result.exit_code == 0, result.output
    explained = json.loads(result.stdout)
    rows = explained["operations"]
    assert [row["type"] for row in rows][:3] == ["RESHAPE", "FULLY_CONNECTED", "FULLY_CONNECTED"]
    assert rows[0]["origin"] == "operator 0 (RESHAPE)"
    assert rows[0]["inputs"][0] == "TENSOR_FLOAT32 [1, 8, 8, 1]"
    assert {row["backend"] for row in rows} == {"CpuAcc"}
    assert [partition["operations"] for partition in explained["partitions"]] == [list(range(len(rows)))]
    shown = invoke("explain", DIGITS, "--target", target).stdout
    assert "operator 4 (SOFTMAX)" in shown and "CpuAcc" in shown


def test_times_are_shown(target: str, tmp_path: Path) -> None:
    page = tmp_path / "graph.html"
    result = invoke("explain", DIGITS, "--target", target, "--run", "--json", "--html", page)
    assert result.exit_code == 0, result.output
    explained = json.loads(result.stdout)
    (partition,) = explained["partitions"]
    assert partition["time_us"] > 0 and partition["share"] == 1
    times = [row["time_us"] for row in explained["operations"]]
    assert sum(times) + partition["between_us"] == pytest.approx(partition["time_us"])
    run = explained["run"]
    assert run["operations_us"] == pytest.approx(sum(times)) and run["ordinary_us"] > 0
    assert run["operations_us"] + run["between_us"] == pytest.approx(run["profiled_us"])
    assert "The profiled execution took" in page.read_text() and "whole partition" not in page.read_text()
    shown = invoke("explain", DIGITS, "--target", target, "--run").stdout
    assert "(100.0%)" in shown and "between operations" in shown and "ordinary one" in shown


def test_service_is_started_and_invalid_file_is_reported(tmp_path: Path) -> None:
    assert invoke("explain", DIGITS).exit_code == 0
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"TFL3")
    assert_fails(invoke("explain", bad), 2, "bad.tflite")


def test_graph_is_drawn(target: str, tmp_path: Path) -> None:
    page = tmp_path / "graph.html"
    assert invoke("explain", DIGITS, "--target", target, "--html", page).exit_code == 0
    assert "4 SOFTMAX" in page.read_text()
    assert_fails(
        invoke("explain", DIGITS, "--target", target, "--html", tmp_path / "no" / "graph.html"), 2, "cannot write"
    )
