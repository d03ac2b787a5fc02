"""Models of plans: they compute the same as the models that were prepared."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.execution.plan_model import model_of
from tests.driver.control_flow_models import (
    VALUES,
    GraphWriter,
    adds_one,
    choose,
    counts,
    doubles,
    f,
    less_than,
    loop,
    nested,
)
from tests.driver.one_operation import execute, prepare
from tests.end_to_end.support.random_models import random_sample


def assert_same(model: Model, inputs: Sequence[AnyArray]) -> Model:
    outcome = prepare(model)
    assert outcome.prepared_model is not None
    expected = execute(outcome, inputs)[1]
    copy = model_of(outcome.prepared_model.plan)
    copied = prepare(copy)
    for actual, value in zip(execute(copied, inputs)[1], expected, strict=True):
        np.testing.assert_array_equal(actual, value)
    assert copied.prepared_model is not None
    again = model_of(copied.prepared_model.plan)
    assert (again.main, again.referenced) == (copy.main, copy.referenced)
    return copy


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (choose(adds_one(), doubles()), [np.array([True]), f(5)]),
        (loop(less_than(), counts()), [f(0), f(4)]),
        (nested(60), [np.array([True]), f(1)]),
    ],
)
def test_control_flow(model: Model, inputs: Sequence[AnyArray]) -> None:
    assert_same(model, inputs)


def test_subgraphs_that_never_run_are_left_out() -> None:
    w = GraphWriter()
    condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(1), w.reference(2), w.input()
    w.apply(Op.IF, [condition, a, b, x])
    model = Model(w.graph(), (less_than(), adds_one(), doubles()), VALUES)
    assert len(assert_same(model, [np.array([False]), f(5)]).referenced) == 2


def test_random_models() -> None:
    random, compared = Random(3), 0
    while compared < 60:
        sample = random_sample(random)
        try:
            execute(prepare(sample.model), sample.inputs)
        except (HalError, AssertionError):
            continue
        assert_same(sample.model, sample.inputs)
        compared += 1
