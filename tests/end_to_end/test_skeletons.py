"""What `nnhal new-backend` writes passes conformance as it is: whatever it does not take is skipped, nothing fails."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.driver.backends.native.building import build
from tools.cli import app

SUITES = "basic,generated,cache,extra,nnhal"
"""Those that prepare models in many ways. The others take as long again."""


@pytest.mark.parametrize("language", ["python", "c"])
def test_a_skeleton_passes_conformance(language: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["new-backend", "Acme", "Npu", "--lang", language, "--folder", str(tmp_path)]).exit_code == 0
    if language == "c":
        build(tmp_path / "Acme_Npu_backend.c", tmp_path / "Acme_Npu_backend.so", tmp_path)
    own = ["--backends-path", str(tmp_path), "--backend", "Npu"]
    slow = ["--exclude", "CACHE-28", "--exclude", "CACHE-30"]  # a hundred rounds each; CACHE-29 and -31 are like them
    result = run(app, ["conformance", "--strict", "--suite", SUITES, *slow, *own])
    assert result.exit_code == 0, result.output
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped)", result.stdout)}
    assert counts["failed"] == 0 and counts["passed"] > 100 and counts["skipped"] > 200, result.stdout
