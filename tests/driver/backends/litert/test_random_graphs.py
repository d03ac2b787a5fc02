"""Differential fuzzing of CpuAcc against CpuRef: random graphs must give the same, within what roundings explain.

NNHAL_FUZZ_EXAMPLES says how many graphs are tried: 300, always the same ones, unless it is set. More are tried in child
processes, so that a crash of the engine ends with the graph that it crashed on.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from driver.backends import registry
from driver.backends.litert.lowering import CONVERTERS
from driver.device import Device
from nnhal.errors import HalError
from nnhal.types import AnyArray, Model, Placement
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.random_graphs import Sample, graphs
from tests.driver.one_operation import execute, prepare

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

EXAMPLES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "0"))
FEW, CHUNK = 300, 500
ROOT = Path(__file__).parents[4]
REACHED = 0.9
"""Share of the operations that CpuAcc has which FEW graphs must reach."""


@cache
def device(*backends: str) -> Device:
    return Device("test", registry.create(backends))


def run(model: Model, arrays: Sequence[AnyArray], *backends: str) -> tuple[Placement, list[AnyArray] | HalError]:
    outcome = prepare(model, device(*backends))
    assert outcome.prepared_model is not None, outcome.reason
    try:
        return outcome.prepared_model.placement, execute(outcome, arrays)[1]
    except HalError as error:
        return outcome.prepared_model.placement, error


def hold_alike(sample: Sample) -> Counter[Op]:
    """Compares; gives the operations that CpuAcc ran."""
    _, expected = run(sample.model, sample.inputs, "CpuRef")
    placement, found = run(sample.model, sample.inputs, "CpuAcc", "CpuRef")
    if isinstance(expected, HalError) or isinstance(found, HalError):
        assert not sample.expected, f"CpuRef: {expected}; CpuAcc: {found}"
        assert (type(found), str(found)) == (type(expected), str(expected))
    else:
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), f"output {i}"
            if sample.expected:
                np.testing.assert_array_equal(b, sample.expected[i], err_msg=f"output {i}: CpuRef, other than alone")
                hold_near(i, a, b, sample.errors[i])
    return Counter(Op(one.type) for one in placement.operations if one.backend == "CpuAcc")


def hold_near(output: int, found: AnyArray, expected: AnyArray, error: AnyArray) -> None:
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    over = ~(difference <= error)
    if over.any():
        allowed = np.broadcast_to(error, over.shape)[over][:4]
        text = f"{found[over][:4]} for {expected[over][:4]}, {difference[over][:4]} apart, allowed {allowed}"
        raise AssertionError(f"output {output}: {text}")


def try_graphs(count: int, number: int | None, last: Path | None = None) -> Counter[Op]:
    """Tries random graphs, always the same ones where there is no number; gives the operations that CpuAcc ran.

    Args:
        last: a file that holds, at any time, the graph that is being tried.
    """
    reached: Counter[Op] = Counter()

    @settings(
        max_examples=count,
        derandomize=number is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(sample=graphs())
    def try_one(sample: Sample) -> None:
        if last is not None:
            last.write_text(repr(sample))
        reached.update(hold_alike(sample))

    (try_one if number is None else seed(number)(try_one))()
    return reached


def test_random_graphs() -> None:
    reached = try_graphs(FEW, None)
    missing = {Op(type_) for type_ in CONVERTERS} - set(reached)
    assert len(missing) <= (1 - REACHED) * len(CONVERTERS), f"never on CpuAcc: {sorted(one.name for one in missing)}"


@pytest.mark.skipif(EXAMPLES <= FEW, reason="only with NNHAL_FUZZ_EXAMPLES")
@pytest.mark.parametrize("number", range(max(EXAMPLES // CHUNK, 1)))
def test_many_random_graphs(number: int, tmp_path: Path) -> None:
    last = tmp_path / "last.txt"
    command = [sys.executable, "-m", __name__, str(number), str(CHUNK), str(last)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode >= 0, f"signal {-child.returncode} on\n{last.read_text()}"
    assert child.returncode == 0, child.stdout + child.stderr


if __name__ == "__main__":
    try_graphs(int(sys.argv[2]), int(sys.argv[1]), Path(sys.argv[3]))
