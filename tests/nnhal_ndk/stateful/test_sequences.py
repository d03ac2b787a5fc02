"""Random sequences of calls, in a process of their own, so that a crash is reported with its calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service

TIMEOUT_S = 3 * 3600
SEQUENCES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "10000")) // 2
"""Half of the examples of other tests: each has dozens of calls."""


def _run(library: Path, service: Service, trace: Path, sequences: int) -> None:
    command = [sys.executable, "-m", "tests.nnhal_ndk.stateful.program", str(library), str(trace), str(sequences)]
    targets = f"{service.target},{service.target}"  # two devices
    environment = {**os.environ, "NNHAL_TARGET": targets, "NNHAL_NDK_LOG": "critical"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(f"{done.stdout}{done.stderr}\nThe last calls:\n{trace.read_text()}")


def test_random_sequences_have_the_documented_results(library_path: Path, ndk_service: Service, tmp_path: Path) -> None:
    _run(library_path, ndk_service, tmp_path / "trace", 20)


@pytest.mark.nightly
def test_many_random_sequences_have_the_documented_results(
    library_path: Path, ndk_service: Service, tmp_path: Path
) -> None:
    _run(library_path, ndk_service, tmp_path / "trace", SEQUENCES)
