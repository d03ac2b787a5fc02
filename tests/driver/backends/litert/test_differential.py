"""CpuAcc against CpuRef: random operations run on the engine and give the reference's results."""

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import OperationType as Op
from nnhal_driver.backends.litert.lowering import CONVERTERS
from tests.driver.backends.litert.support.comparison import assert_close, run
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.samples import SAMPLES, Case, cases

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


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
        reject()  # the draw breaks a rule of the operation
    placed, actual = run(model, arrays, "CpuAcc", "CpuRef")
    assert placed == {"CpuAcc"}
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b, 1)
