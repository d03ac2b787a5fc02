"""`nnhal explain`: operators, times and the graph."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from nnhal.embedded import EmbeddedService
from tests.shared import SHARED, shared
from tests.tools.cli.command import DIGITS, UNREACHABLE, assert_fails, invoke
from tests.tools.cli.models import write_mask_model
from tests.tools.explain.models import refused_file, varied_file


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


def test_totals_and_other_operators_come_first(target: str, tmp_path: Path) -> None:
    result = invoke("explain", varied_file(tmp_path), "--target", target)
    assert result.exit_code == 0, result.output
    first, *rest = result.stdout.splitlines()
    assert first == "varied.tflite: 7 operators: 3 direct, 1 composed, 1 folded, 1 unread, 1 extension in 1 region"
    assert "input image: INT8 [1, 4, 4, 1], scale 0.5, zero point 3" in rest
    assert "cumulative sums" in result.stdout and "SUBMODEL of org.nnhal.litert" in result.stdout
    assert "operand type" not in result.stdout and "operation type" not in result.stdout


def test_refused_operators_are_all_listed_without_a_service(tmp_path: Path) -> None:
    path, page = refused_file(tmp_path), tmp_path / "page.html"
    result = invoke("explain", path, "--target", UNREACHABLE, "--html", page)
    assert (result.exit_code, result.stderr) == (1, ""), result.output
    assert "2 operators are refused" in result.stdout and "'Mystery' is not part of LiteRT" in result.stdout
    assert "no placement: the model cannot be imported" in result.stdout
    assert "operators of the file, by outcome" in page.read_text()
    shown = json.loads(invoke("explain", path, "--json").stdout)
    assert shown["totals"]["outcomes"] == {"direct": 1, "refused": 2} and shown["operations"] == []


def test_import_is_shown_if_no_service_responds(tmp_path: Path) -> None:
    result = invoke("explain", varied_file(tmp_path), "--target", UNREACHABLE, "--json")
    assert result.exit_code == 1 and "connection refused" in result.stderr
    shown = json.loads(result.stdout)
    assert "connection refused" in shown["missing"] and len(shown["import"]["operators"]) == 7


def test_extension_can_be_turned_off(target: str, tmp_path: Path) -> None:
    result = invoke("explain", varied_file(tmp_path), "--target", target, "--no-extension")
    assert result.exit_code == 1 and "1 operator is refused" in result.stdout


def test_operations_that_the_device_lacks_run_on_this_machine(tmp_path: Path) -> None:
    path = varied_file(tmp_path)
    with closing(EmbeddedService("--backends", "CpuRef")) as service:
        alone = invoke("explain", path, "--target", service.target, "--no-fallback")
        assert alone.exit_code == 1 and "not supported" in alone.stdout
        result = invoke("explain", path, "--target", service.target, "--run", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["totals"]["fallback_operators"] == 1 and shown["totals"]["backends"]["CpuAcc (this machine)"] == 1
    assert shown["fallback"]["crossing_bytes"] > 0 and shown["run"]["ordinary_us"] > 0


def test_shapes_are_replaced(target: str, tmp_path: Path) -> None:
    model = write_mask_model(tmp_path)
    result = invoke("explain", model, "--target", target, "--shape", "image=8,4,4,3")
    assert result.exit_code == 0 and "TENSOR_FLOAT32 [8,4,4,3]" in result.stdout
    assert_fails(invoke("explain", model, "--target", target, "--shape", "picture=8,4,4,3"), 2, "picture")


def test_shape_that_an_operator_does_not_take_leaves_the_rank_open(target: str) -> None:
    """The batch is constant in a RESHAPE of this model."""
    result = invoke("explain", DIGITS, "--target", target, "--shape", "image=4,8,8,1")
    assert result.exit_code == 0 and "output probabilities: FLOAT32 of unknown rank" in result.stdout


@pytest.mark.nightly
def test_every_model_is_explained(target: str, tmp_path: Path) -> None:
    shared("models")
    for model in sorted((SHARED / "models").glob("*.tflite")):
        page = tmp_path / "page.html"
        result = invoke("explain", model, "--target", target, "--json", "--html", page)
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert sum(shown["totals"]["outcomes"].values()) == len(shown["import"]["operators"]) > 0, model
        assert sum(shown["totals"]["backends"].values()) == len(shown["operations"]) > 0, model
        assert all(row["operations"] for row in shown["import"]["operators"] if row["types"]), model
        assert page.read_text().count("<tr class=") == len(shown["import"]["operators"])
