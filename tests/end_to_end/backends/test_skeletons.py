"""Skeletons of `nnhal new-backend` pass conformance: checks of unsupported operations are skipped, and none fails."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nnhal_tools.cli import app
from tests.conformance_sample import SAMPLE
from tests.driver.backends.native.building import build

SUITES = "basic,generated,cache,extra,nnhal"
"""Suites that prepare models in many ways. The other suites would take as long again."""


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize(
    ("selected", "passed", "skipped"),
    [
        pytest.param(SAMPLE, 15, 20, marks=pytest.mark.slow, id="sample"),
        pytest.param((), 100, 200, marks=pytest.mark.nightly, id="all"),
    ],
)
def test_skeleton_passes_conformance(
    language: str, selected: tuple[str, ...], passed: int, skipped: int, tmp_path: Path
) -> None:
    run = CliRunner().invoke
    assert run(app, ["new-backend", "Acme", "Npu", "--lang", language, "--folder", str(tmp_path)]).exit_code == 0
    if language == "c":
        build(tmp_path / "Acme_Npu_backend.c", tmp_path / "Acme_Npu_backend.so", tmp_path)
    plugin = ["--backends-path", str(tmp_path), "--backend", "Npu"]
    # a hundred rounds each; CACHE-29 and CACHE-31 are similar
    slow = ["--exclude", "CACHE-28", "--exclude", "CACHE-30"]
    result = run(app, ["conformance", "--strict", "--suite", SUITES, *selected, *slow, *plugin])
    assert result.exit_code == 0, result.output
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped)", result.stdout)}
    assert counts["failed"] == 0 and counts["passed"] > passed and counts["skipped"] > skipped, result.stdout
