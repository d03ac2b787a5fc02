"""Operations that the device does not support run on this machine, and commands say so."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nnhal.embedded import EmbeddedService
from tests.nnhal.tflite.region import squaring_file
from tests.tools.cli.command import DIGITS, assert_fails, invoke
from tests.trace_format import check_trace

SUMMARY = "1 of 3 operations run on this machine, because the device does not support it (CpuRef: "
COST = "48 bytes cross per execution, in 3 parts"


@pytest.fixture(scope="module")
def cpu_ref() -> Iterator[str]:
    """Yield the address of a service that does not have the LiteRT extension."""
    with closing(EmbeddedService("--backends", "CpuRef")) as service:
        yield service.target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model with a region of the extension."""
    path = tmp_path / "squaring.tflite"
    path.write_bytes(squaring_file())
    return path


@pytest.mark.slow
def test_run_says_what_runs_here(cpu_ref: str, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 3, np.float32))
    arguments = ["run", model, "--target", cpu_ref, "--input", tmp_path / "x.npy"]
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert SUMMARY in text
    assert COST in text
    printed = json.loads(invoke(*arguments, "--json").stdout)
    assert printed["outputs"][0]["mean"] == -9
    summary = printed["fallback"].pop("summary")
    assert summary.startswith(SUMMARY)
    assert summary.endswith(COST)
    assert printed["fallback"] == {"operations": [1], "parts": 3, "crossing_bytes": 48}


def test_trace_has_both_sides(cpu_ref: str, model: Path, tmp_path: Path) -> None:
    result = invoke("run", model, "--target", cpu_ref, "--trace", tmp_path / "trace.json")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "trace.json").read_text()
    check_trace(text)
    trace = json.loads(text)
    threads = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {"CpuRef", "CpuAcc (this machine)"} <= threads


def test_fallback_can_be_turned_off(cpu_ref: str, model: Path) -> None:
    assert_fails(invoke("run", model, "--target", cpu_ref, "--no-fallback"), 1, "operation 1 of main", "CpuRef")


def test_supported_model_is_not_mentioned(cpu_ref: str) -> None:
    result = invoke("run", DIGITS, "--target", cpu_ref)
    assert result.exit_code == 0, result.output
    assert "this machine" not in result.stdout
    assert json.loads(invoke("run", DIGITS, "--target", cpu_ref, "--json").stdout)["fallback"] is None
