"""CpuAcc against CpuRef: random operations must run on the engine and give what the reference gives."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from driver.backends import registry
from driver.backends.litert.lowering import CONVERTERS
from driver.device import Device
from nnhal.errors import HalError
from nnhal.types import AnyArray, Model
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.models import one_operation
from tests.driver.backends.litert.samples import SAMPLES, Case, cases
from tests.driver.one_operation import execute, prepare

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


@cache
def device(*backends: str) -> Device:
    return Device("test", registry.create(backends))


def run(model: Model, arrays: Sequence[AnyArray], *backends: str) -> tuple[set[str], list[AnyArray]]:
    outcome = prepare(model, device(*backends))
    assert outcome.prepared_model is not None, outcome.reason
    placed = {one.backend for one in outcome.prepared_model.placement.operations}
    return placed, execute(outcome, arrays)[1]


def hold_equal(found: AnyArray, expected: AnyArray, steps: int) -> None:
    """Floats nearly, integers of 8 bits within `steps`, all else exactly. CpuRef sums half floats in half precision."""
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        loose = expected.dtype == np.float16
        np.testing.assert_allclose(found, expected, rtol=5e-3 if loose else 2e-5, atol=1e-2 if loose else 2e-5)
    elif expected.dtype.itemsize == 1 and expected.dtype.kind in "iu":
        assert np.abs(found.astype(int) - expected).max(initial=0) <= steps
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_converter_has_a_sample() -> None:
    assert {Op(type_) for type_ in CONVERTERS} == set(SAMPLES)


@pytest.mark.parametrize("type_", sorted(SAMPLES), ids=lambda type_: Op(type_).name)
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_operation(type_: Op, data: st.DataObject) -> None:
    case: Case = data.draw(cases(type_))
    model, arrays = one_operation(case)
    try:
        expected = run(model, arrays, "CpuRef")[1]
    except HalError:
        reject()  # a draw that breaks a rule of the operation
    placed, found = run(model, arrays, "CpuAcc", "CpuRef")
    assert placed == {"CpuAcc"}
    for a, b in zip(found, expected, strict=True):
        hold_equal(a, b, 1)
