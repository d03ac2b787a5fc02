"""Mutated files are imported or refused with a message that names a place; the import neither crashes nor hangs.

NNHAL_FUZZ_EXAMPLES is the number of files. They are imported in child processes, and are the same each time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "300"))
EXAMPLES_PER_PROCESS = 1000
ROOT = Path(__file__).parents[3]
TIMEOUT_S = 500
_SEED = 1


@pytest.mark.parametrize("first", range(0, EXAMPLES, EXAMPLES_PER_PROCESS))
def test_mutated_files_are_imported_or_refused(first: int, tmp_path: Path) -> None:
    count = min(EXAMPLES - first, EXAMPLES_PER_PROCESS)
    command = [sys.executable, "-m", "tests.nnhal.tflite.mutated_files", *map(str, (_SEED, first, count, tmp_path))]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    number = (tmp_path / "last.txt").read_text()
    assert child.returncode == 0, f"file {number} ended with {child.returncode}:\n{child.stderr[-2000:]}"
    counts = json.loads(child.stdout.splitlines()[-1])
    assert counts["imported"] + counts["refused"] == count
    assert counts["imported"] > count * 0.3  # also mutated files reach the conversion
    assert counts["refused"] > count * 0.1
