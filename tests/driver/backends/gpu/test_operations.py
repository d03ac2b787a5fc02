"""GpuAcc against CpuRef: random operations on SwiftShader, and what the GPU does not take."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.gpu.operations import accepted_operations
from tests.driver.backends.gpu.software_gpu import gpu_device, require_software_gpu
from tests.driver.backends.litert.support.comparison import run
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.samples import SAMPLES, Case, cases
from tests.driver.one_operation import (
    Value,
    boolean,
    execute,
    float32,
    float_tensor,
    int32,
    int_tensor,
    prepare,
    tensor,
)

HALVES: dict[int, int] = {T.TENSOR_FLOAT32: T.TENSOR_FLOAT16, T.FLOAT32: T.FLOAT16}
OUT = tensor(T.TENSOR_FLOAT32)
IMAGE = float_tensor(np.arange(16.0).reshape(1, 2, 2, 4))
KERNEL, BIAS = float_tensor(np.ones((3, 1, 1, 4))), float_tensor(np.zeros(3))


@pytest.fixture(autouse=True)
def _software_gpu() -> None:
    require_software_gpu()


def halved(case: Case) -> Case:
    """Return a case with float16 in place of float32."""

    def half(operand: Operand) -> Operand:
        return replace(operand, type=HALVES.get(operand.type, operand.type))

    inputs = [(half(operand), value) for operand, value in case.inputs]
    return replace(case, inputs=inputs, outputs=[half(operand) for operand in case.outputs])


def compare(type_: int, data: st.DataObject) -> None:
    """Compare an operation with CpuRef."""
    case: Case = data.draw(cases(Op(type_)))
    assume(all(operand.type == T.TENSOR_FLOAT32 for operand in case.outputs))
    is_half = data.draw(st.booleans())
    model, arrays = one_operation(halved(case) if is_half else case)
    try:
        expected = run(model, arrays, "CpuRef")[1]
    except HalError:
        reject()  # the draw breaks a rule of the operation
    outcome = prepare(model, gpu_device("CpuRef"))
    assert outcome.prepared_model is not None
    for operation in outcome.prepared_model.placement.operations:
        assert not any("failed to compile" in refusal.reason for refusal in operation.refusals), operation
    rtol, atol = (4e-3, 2e-3) if is_half else (2e-4, 1e-4)
    for actual, reference in zip(execute(outcome, arrays)[1], expected, strict=True):
        np.testing.assert_allclose(actual.astype(np.float32), reference.astype(np.float32), rtol=rtol, atol=atol)


BY_TYPE = pytest.mark.parametrize("type_", sorted(accepted_operations()), ids=lambda type_: Op(type_).name)


@BY_TYPE
@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_results_are_those_of_the_reference(type_: int, data: st.DataObject) -> None:
    compare(type_, data)


@pytest.mark.nightly
@BY_TYPE
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_results_are_those_of_the_reference(type_: int, data: st.DataObject) -> None:
    compare(type_, data)


def test_every_accepted_operation_has_a_sample() -> None:
    assert accepted_operations() <= set(SAMPLES)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("shape", "constant"),
    [
        *(((5,), (5,)), ((5,), (1,)), ((1,), (5,)), ((5,), (3, 5)), ((3, 5), (5,)), ((3, 5), (3, 5)), ((3, 5), (3, 1))),
        *(((3, 5), (1, 5)), ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 5)), ((2, 3, 5), (2, 1, 1))),
        *(((2, 3, 4, 5), (2, 3, 4, 5)), ((2, 3, 4, 5), (3, 4, 5)), ((2, 3, 4, 5), (1, 1, 4, 1))),
    ],
)
def test_constants_are_used_as_a_whole(shape: tuple[int, ...], constant: tuple[int, ...], is_first: bool) -> None:
    operands = [float_tensor(np.random.default_rng(n).uniform(1, 2, s)) for n, s in enumerate((shape, constant))]
    inputs = [*(reversed(operands) if is_first else operands), int32(0)]
    model, arrays = one_operation(Case(Op.SUB, inputs, [OUT], frozenset({0 if is_first else 1})))
    expected, actual = run(model, arrays, "CpuRef")[1], execute(prepare(model, gpu_device("CpuRef")), arrays)[1]
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)


def pooled(padding: int) -> Case:
    return Case(Op.AVERAGE_POOL_2D, [IMAGE, *map(int32, (padding, 0, 0, 0, 1, 1, 2, 2, 1))], [OUT])


def padded(batch: int) -> Case:
    paddings = int_tensor(np.array([[batch, 0], [1, 1], [0, 0], [0, 0]]))
    return Case(Op.PAD, [IMAGE, paddings], [OUT], frozenset({1}))


def convolved(*constants: int) -> Case:
    return Case(Op.CONV_2D, [IMAGE, KERNEL, BIAS, *map(int32, (1, 1, 1, 0))], [OUT], frozenset(constants))


def depthwise(side: int, multiplier: int) -> Case:
    filter_ = float_tensor(np.ones((1, side, side, 4 * multiplier)))
    inputs = [IMAGE, filter_, float_tensor(np.zeros(4 * multiplier)), *map(int32, (1, 1, 1, multiplier, 0))]
    return Case(Op.DEPTHWISE_CONV_2D, inputs, [OUT], frozenset({1, 2}))


def reduced(*axes: int) -> Case:
    return Case(Op.REDUCE_SUM, [IMAGE, int_tensor(np.array(axes)), boolean(False)], [OUT], frozenset({1}))


def rearranged(batch: int, block: int) -> Case:
    image = float_tensor(np.arange(16.0 * batch).reshape(batch, 2, 2, 4))
    return Case(Op.SPACE_TO_DEPTH, [image, int32(block)], [OUT])


QUANTIZED: Value = (tensor(T.TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 128), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (convolved(1, 2), ""),
        (convolved(), "the GPU needs constant weights"),
        (depthwise(1, 1), ""),
        (depthwise(2, 2), ""),
        (depthwise(1, 2), "the GPU confuses the channels of a filter of 1 x 1"),
        (pooled(0), ""),
        (pooled(1), "the GPU divides by another number of elements"),
        (reduced(1, 2), ""),
        (reduced(0, 1, 2, -1), "the GPU does not reduce a tensor to one element"),
        (rearranged(1, 2), ""),
        (rearranged(2, 2), "the GPU moves blocks of one batch only"),
        (rearranged(1, 1), "the GPU moves blocks of one batch only"),
        (Case(Op.CAST, [IMAGE], [tensor(T.TENSOR_FLOAT16)]), "the GPU does not round to TENSOR_FLOAT16"),
        (padded(0), ""),
        (padded(1), "the GPU does not pad batches"),
        (Case(Op.SOFTMAX, [IMAGE, float32(1.0)], [OUT]), ""),
        (Case(Op.SOFTMAX, [IMAGE, float32(0.5)], [OUT]), "the GPU has beta 1 and the last axis only"),
        (Case(Op.RELU, [QUANTIZED], [QUANTIZED[0]]), "the GPU computes TENSOR_FLOAT32 and TENSOR_FLOAT16 only"),
        (Case(Op.SIN, [IMAGE], [OUT]), "the GPU accelerator has no such operation, or computes it in another way"),
        (Case(Op.LOG, [IMAGE], [OUT]), "the GPU accelerator has no such operation, or computes it in another way"),
        (Case(Op.POW, [IMAGE, IMAGE], [OUT]), "the GPU accelerator has no such operation, or computes it in another"),
        (Case(Op.L2_NORMALIZATION, [IMAGE], [OUT]), "the GPU accelerator has no such operation"),
        (Case(Op.ABS, [float_tensor(np.zeros((1,) * 5))], [OUT]), "the GPU computes ranks 1 to 4; this one is 5"),
    ],
)
def test_refusals_have_a_reason(case: Case, reason: str) -> None:
    outcome = prepare(one_operation(case)[0], gpu_device("CpuRef"))
    assert outcome.prepared_model is not None
    (operation,) = outcome.prepared_model.placement.operations
    assert operation.backend == ("CpuRef" if reason else "GpuAcc")
    assert not reason or operation.refusals[0].reason.startswith(reason)
