"""The corpus of models of one operator, in LiteRT's interpreter in Python: results equal those of LiteRT."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, cases
from tests.nnhal.tflite.corpus.exceptions import crash
from tests.nnhal_delegate.corpus_worker import PROBLEM, RUNNING

pytestmark = pytest.mark.nightly

EXPECTED = ("has values that int32, its type on the device, cannot hold",)
"""Parts of messages of models that the delegate refuses to run, see docs/delegate.md."""
TIMEOUT_S = 1800


@pytest.mark.parametrize("operator", sorted(GENERATORS))
def test_results_equal_those_of_litert(operator: str, delegate_path: Path, delegate_service: Service) -> None:
    names = [case.name for case in cases(operator) if not crash(case.name)]
    command = [sys.executable, "-m", "tests.nnhal_delegate.corpus_worker", str(delegate_path)]
    done = subprocess.run(
        command,
        input="\n".join(names),
        env={**os.environ, "NNHAL_TARGET": delegate_service.target},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    lines = done.stdout.splitlines()
    problems = [line for line in lines if line.startswith(PROBLEM) and not any(part in line for part in EXPECTED)]
    assert problems == []
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    assert sum(line.startswith(RUNNING) for line in lines) == len(names)
