"""Differential fuzzing: CpuAcc and CpuRef give the same results for random graphs, within the bounds of rounding.

NNHAL_FUZZ_EXAMPLES is the number of graphs. By default the tests take the same 40 graphs each time, and the slow test
300. More graphs run in child processes, so that a crash of the engine reports the graph that caused it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnhal.types import OperationType as Op
from nnhal_driver.backends.litert.lowering import CONVERTERS
from tests.driver.backends.litert.support.fuzzing import check_random_graphs

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

EXAMPLES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "0"))
QUICK_EXAMPLES, DEFAULT_EXAMPLES, EXAMPLES_PER_PROCESS = 40, 300, 500
ROOT = Path(__file__).parents[4]
MIN_COVERAGE = 0.9
"""Share of CpuAcc's operations that DEFAULT_EXAMPLES graphs must contain."""


def test_some_random_graphs() -> None:
    assert check_random_graphs(QUICK_EXAMPLES, None)


@pytest.mark.slow
def test_random_graphs_cover_the_operations() -> None:
    covered = check_random_graphs(DEFAULT_EXAMPLES, None)
    missing = {Op(type_) for type_ in CONVERTERS} - set(covered)
    assert len(missing) <= (1 - MIN_COVERAGE) * len(CONVERTERS), (
        f"operations that never ran on CpuAcc: {sorted(type_.name for type_ in missing)}"
    )


@pytest.mark.skipif(EXAMPLES <= DEFAULT_EXAMPLES, reason="only with NNHAL_FUZZ_EXAMPLES")
@pytest.mark.parametrize("seed", range(max(EXAMPLES // EXAMPLES_PER_PROCESS, 1)))
def test_many_random_graphs(seed: int, tmp_path: Path) -> None:
    last_graph = tmp_path / "last.txt"
    module = "tests.driver.backends.litert.support.fuzzing"
    command = [sys.executable, "-m", module, str(seed), str(EXAMPLES_PER_PROCESS), str(last_graph)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode >= 0, f"signal {-child.returncode} on\n{last_graph.read_text()}"
    assert child.returncode == 0, child.stdout + child.stderr
