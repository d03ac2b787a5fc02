"""Memory of the engine's kernels, as reserved before it is allocated, beside what processes really need."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from queue import SimpleQueue

import numpy as np
import pytest

import nnhal
from nnhal.errors import limit_exceeded
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.launches import launch_preparation

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

MARGIN = 16 * 2**20
"""Memory of a first interpreter."""

SIDE, FILTER = 2048, 31


def measured(seed: int, count: int) -> Iterator[dict[str, object]]:
    """Yield what random operations have reserved and needed, see `memory_growth`."""
    program = "tests.driver.backends.litert.support.memory_growth"
    command = [sys.executable, "-m", program, str(seed), str(count)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    yield from map(json.loads, lines)


@pytest.mark.parametrize(
    ("seed", "count"),
    [pytest.param(0, 20, marks=pytest.mark.slow), pytest.param(None, 300, marks=pytest.mark.nightly)],
)
def test_no_operation_needs_more_than_is_reserved(seed: int | None, count: int) -> None:
    start = random.randrange(2**32) if seed is None else seed
    results = list(measured(start, count))
    assert len(results) == count
    large = 0
    for result in results:
        assert "refused" not in result, result
        assert result["needed"] <= result["reserved"] + MARGIN, result  # type: ignore[operator]
        large += result["needed"] > 2 * MARGIN  # type: ignore[operator]
    assert large >= count // 10, "the operations are too small to tell"


def test_filter_that_needs_too_much_is_refused_before_it_takes_memory() -> None:
    """A model of 1 KB, whose interpreter would need 32 GB before anything is executed."""
    shape = (1, SIDE, SIDE, 1)
    b = nnhal.ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, shape)
    weights = b.constant(np.ones((1, FILTER, FILTER, 1), np.float32))
    b.output(b.add(Op.CONV_2D, x, weights, np.zeros(1, np.float32), 1, 1, 1, 0, output=Operand(3, shape)))
    outcomes, sizes = SimpleQueue[Outcome](), list[int]()

    def reserve(size: int) -> None:
        sizes.append(size)
        if size > 2**30:
            raise limit_exceeded("service_memory_bytes", f"{size} bytes")

    acc = Device("test", registry.create(["CpuAcc", "CpuRef"]))
    launch_preparation(acc, b.build(), outcomes.put, reserve=reserve)
    assert outcomes.get().status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert max(sizes) >= 8 * FILTER**2 * SIDE**2
    acc.close()
