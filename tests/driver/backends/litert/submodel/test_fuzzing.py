"""Mutated sub-models: each is refused with a message that names a place, or LiteRT runs it without a crash or hang.

NNHAL_FUZZ_EXAMPLES is the number of examples. They run in child processes, and are the same each time.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import parse, verify
from tests.driver.backends.litert.submodel.fuzzing import run
from tests.driver.backends.litert.submodel.seeds import operators
from tests.nnhal.tflite.build import Op, Tensor, build, options

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

EXAMPLES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "300"))
EXAMPLES_PER_PROCESS = 500
ROOT = Path(__file__).parents[5]
TIMEOUT_S = 500
_SEED = 1


@pytest.mark.parametrize("first", range(0, EXAMPLES, EXAMPLES_PER_PROCESS))
def test_accepted_models_do_not_crash_the_engine(first: int, tmp_path: Path) -> None:
    count = min(EXAMPLES - first, EXAMPLES_PER_PROCESS)
    module = "tests.driver.backends.litert.submodel.fuzzing"
    command = [sys.executable, "-m", module, str(_SEED), str(first), str(count), str(tmp_path)]
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
    child = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    number = (tmp_path / "last.txt").read_text()
    assert child.returncode == 0, f"example {number} ended with {child.returncode}:\n{child.stderr[-2000:]}"
    counts = Counter[str](json.loads(child.stdout.splitlines()[-1]))
    assert counts["refused"] + counts["ran"] + counts["failed"] == count
    assert counts["ran"] > count * 0.2  # most mutations of the fields are repaired
    assert counts["failed"] < count * 0.1  # the rules foresee most errors of the engine


def test_most_operators_are_tested() -> None:
    assert len(set(operators())) > 120


@pytest.mark.parametrize("index", [-1, 4, 100, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("type_", ["FLOAT32", "INT8", "INT32", "BOOL"])
@pytest.mark.parametrize("name", ["GATHER", "GATHER_ND", "EMBEDDING_LOOKUP"])
def test_kernels_check_indices_that_are_not_constant(name: str, type_: str, index: int) -> None:
    """The rules rely on this. Without it, such operators must be refused unless their indices are constant."""
    table, indices = Tensor((4, 3), type_), Tensor((1, 1) if name == "GATHER_ND" else (1,), "INT32")
    inputs = [indices, table] if name == "EMBEDDING_LOOKUP" else [table, indices]
    op = Op(name, inputs, [Tensor((1, 3), type_)], options("Gather") if name == "GATHER" else None)
    model = parse(build(op))
    verify(model)
    assert run(model, np.random.default_rng(0), {1 if inputs[1] is indices else 0: index})
    assert not run(model, np.random.default_rng(0), {1 if inputs[1] is indices else 0: 3})
