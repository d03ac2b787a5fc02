"""Models of one operator, which vary types, shapes and options: run by LiteRT and by nnhal through the same program."""

import hashlib

import numpy as np
import pytest

from nnhal import litert
from tests.nnhal.litert.corpus import run_case, with_shapes
from tests.nnhal.tflite.corpus.cases import GENERATORS, Case, cases
from tests.nnhal.tflite.corpus.compare import difference
from tests.nnhal.tflite.corpus.exceptions import crash, litert_error, steps

litert_interpreter = pytest.importorskip("ai_edge_litert.interpreter")

SAMPLE = 3


def sample(operator: str) -> list[Case]:
    """Return some models of an operator, always the same ones."""
    models = [case for case in cases(operator) if not crash(case.name) and not litert_error(case.name)]
    return sorted(models, key=lambda case: hashlib.sha256(case.name.encode()).digest())[:SAMPLE]


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(GENERATORS))
def test_operator_runs_as_with_litert(operator: str) -> None:
    for model in sample(operator):
        try:
            case = with_shapes(model)
        except (RuntimeError, ValueError):
            continue  # LiteRT refuses it
        expected = run_case(litert_interpreter, case)
        try:
            actual = run_case(litert, case)
        except RuntimeError as error:
            if "the kernel writes out of bounds" not in str(error):
                raise
            continue  # CpuAcc refuses kernels that are known to be faulty
        allowed = max(steps(case.name, "CpuAcc"), steps(case.name, "CpuRef"))
        for one, other in zip(actual, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), case.name
            assert difference(np.atleast_1d(one), other, allowed) == "", case.name
