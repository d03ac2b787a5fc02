"""`nnhal compare`: the first operation on which two backends differ."""

import json
from pathlib import Path

import numpy as np
import pytest

from nnhal.recording.tensor_difference import STEPS
from nnhal.types import OperationType
from tests.nnhal.litert.models import several_signatures
from tests.shared import shared
from tests.tools.cli.command import DIGITS, assert_fails, invoke
from tests.tools.cli.models import write_counter


def test_backend_is_equal_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def record(*_: object, description: str, completed: int) -> None:
        steps.append((completed, description))

    monkeypatch.setattr("rich.progress.Progress.update", record)
    result = invoke("compare", DIGITS, "--backend", "CpuRef")
    assert [completed for completed, _ in steps] == list(range(11))
    assert steps[0][1] == "CpuRef: starting a service" and steps[-1][1] == "comparing"
    assert result.stderr == ""  # no progress without a terminal
    assert result.exit_code == 0, result.output
    assert "no differences" in result.stdout
    assert "unchanged, compared with CpuRef: equal\n" in result.stdout
    assert "unchanged, compared with LiteRT: equal" in result.stdout


@pytest.mark.slow
def test_first_operation_that_differs_is_reported() -> None:
    model = shared("models/vww_96_int8.tflite")
    result = invoke("compare", model, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["inside"]
    assert [row["type"] for row in rows][:2] == [OperationType.CONV_2D.name, OperationType.DEPTHWISE_CONV_2D.name]
    assert {row["backend"] for row in rows} == {"CpuAcc"}
    assert any(0 < row["maximum"] < 16 and row["unit"] == STEPS for row in rows)
    shown = invoke("compare", model).stdout
    first = next(row for row in rows if row["maximum"] > 0)
    assert f"first difference at operation {first['operation']} ({first['type']})" in shown


def test_unknown_backend_is_reported() -> None:
    assert_fails(invoke("compare", DIGITS, "--backend", "Unknown"), 1, "Unknown")


def test_models_with_states_start_with_the_initial_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "step.npy", np.array([[1, 10]], np.float32))
    result = invoke("compare", write_counter(tmp_path), "--input", tmp_path / "step.npy")
    assert result.exit_code == 0, result.output
    assert "unchanged, output total: equal" in result.stdout and "output sum: equal" in result.stdout


def test_signature_of_a_model_is_compared(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(several_signatures())
    result = invoke("compare", tmp_path / "m.tflite", "--signature", "scale", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["output"] for row in found["plain"]] == [row["output"] for row in found["litert"]] == ["scaled"]
    assert found["litert_problem"] == "" and {row["maximum"] for row in found["litert"]} == {0}
