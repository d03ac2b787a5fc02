"""Shapes that a model may declare and no execution can have: the driver prepares such a model, or says what is wrong.

Validation compares neither the ranks of declared shapes with what operations need nor their sizes with what numpy can
hold, so the cost estimate and the analysis of shapes get them as they are.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import SCALAR_TYPES, Model, OperandLifeTime
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.compilation.cost import LONGEST_NS, estimate_duration_ns
from nnhal_driver.graph import build_graphs
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import Value, boolean, model_of, tensor
from tests.end_to_end.support.random_models import random_sample

MODELS = 400
RANKS = (0, 1, 1, 2, 3, 4, 5, 6, 8, 31, 32, 33, 64, 65, 200)
LENGTHS = (0, 1, 1, 1, 1, 2, 3, 2**16, 2**31)

Shape = tuple[int, ...]


@pytest.fixture(scope="module")
def backends() -> Sequence[Backend]:
    return registry.create(["CpuAcc", "CpuRef"])


def prepare_on(backends: Sequence[Backend], model: Model) -> None:
    """Do what a preparation does with a model.

    Raises:
        HalError: the model is invalid or not supported.
    """
    validate_model(model)
    graphs = build_graphs(model)
    assert 0 <= estimate_duration_ns(graphs) <= LONGEST_NS
    place_and_compile(graphs, backends, CompileOptions(1), relaxed=False)


def with_random_shapes(random: Random, model: Model) -> Model:
    """Return a model with other declared shapes of some inputs and outputs."""
    operands = list(model.main.operands)
    for i, operand in enumerate(operands):
        if operand.type in SCALAR_TYPES or operand.lifetime == OperandLifeTime.CONSTANT_COPY or random.random() < 0.5:
            continue
        shape = tuple(random.choice(LENGTHS) for _ in range(random.choice(RANKS)))
        operands[i] = replace(operand, dimensions=shape)
    return replace(model, main=replace(model.main, operands=tuple(operands)))


@pytest.mark.parametrize("seed", range(3))
def test_random_models_with_random_shapes(
    seed: int, backends: Sequence[Backend], caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    for _ in range(MODELS):
        model = with_random_shapes(random, random_sample(random).model)
        try:
            prepare_on(backends, model)
        except HalError:
            continue
    # the boundary of backends logs what they raise and is not an error of the HAL
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def declaring(type_: Op, shapes: Sequence[Shape], *scalars: Value) -> Model:
    """Return a model of one operation whose inputs and output have these shapes; the last one is that of the output."""
    small = tensor(T.TENSOR_FLOAT32, (1,)), np.zeros(1)
    model = model_of(type_, [*[small] * (len(shapes) - 1), *scalars], [small[0]], constants=False)
    operands, indexes = list(model.main.operands), [*range(len(shapes) - 1), len(model.main.operands) - 1]
    for index, shape in zip(indexes, shapes, strict=True):
        operands[index] = replace(operands[index], dimensions=shape)
    return replace(model, main=replace(model.main, operands=tuple(operands)))


@pytest.mark.parametrize("output", [(6,), (6, 4), (2, 6, 4), (1, 1, 1, 6, 4)])
def test_output_of_a_product_of_matrices_has_any_rank(output: Shape, backends: Sequence[Backend]) -> None:
    prepare_on(backends, declaring(Op.BATCH_MATMUL, [(6, 5), (5, 4), output], boolean(False), boolean(False)))


@pytest.mark.parametrize("shape", [(1,) * 65, (0, *(1,) * 64), (2**31,) * 3, (0, *(2**31,) * 3), (2**30, 2**30)])
def test_input_has_a_shape_that_numpy_cannot_hold(
    shape: Shape, backends: Sequence[Backend], caplog: pytest.LogCaptureFixture
) -> None:
    prepare_on(backends, declaring(Op.ABS, [shape, ()]))
    assert not caplog.records


def test_estimate_of_impossible_shapes_fits_64_bits() -> None:
    huge = (2**31, 2**31, 2**31)
    assert estimate_duration_ns(build_graphs(declaring(Op.RELU, [huge, huge]))) == LONGEST_NS
