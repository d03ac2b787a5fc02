"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import BroadcastableShapes, array_shapes, mutually_broadcastable_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import Value, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16, I32, BOOL = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32, T.TENSOR_BOOL8
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
OUT = tensor(BOOL)


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


def test_and_or_not() -> None:
    x, y = of(BOOL, [[False], [True]]), of(BOOL, [False, True])
    assert run(Op.LOGICAL_AND, [x, y], [OUT])[0].tolist() == [[False, False], [False, True]]
    assert run(Op.LOGICAL_OR, [x, y], [OUT])[0].tolist() == [[False, True], [True, True]]
    assert run(Op.LOGICAL_NOT, [x], [OUT])[0].tolist() == [[True], [False]]


def test_every_byte_except_0_is_true() -> None:
    x, y = (tensor(BOOL, (3,)), np.array([2, 4, 0], np.uint8).view(np.bool_)), of(BOOL, [True, False, False])
    actual = run_kernel(Op.LOGICAL_AND, [x, y], [OUT]), run_kernel(Op.LOGICAL_OR, [x, y], [OUT])
    assert [array.view(np.uint8).tolist() for (array,) in actual] == [[1, 0, 0], [1, 1, 0]]
    assert run_kernel(Op.LOGICAL_NOT, [x], [OUT])[0].view(np.uint8).tolist() == [0, 0, 1]
    chosen = run_kernel(Op.SELECT, [x, of(I32, [1, 2, 3]), of(I32, [4, 5, 6])], [tensor(I32)])
    assert chosen[0].tolist() == [1, 2, 6]


@pytest.mark.parametrize("type_", [F32, F16, I32])
def test_select_copies(type_: T) -> None:
    condition = of(BOOL, [[True, False], [False, True]])
    out = run(Op.SELECT, [condition, of(type_, [[1, 2], [3, 4]]), of(type_, [[5, 6], [7, 8]])], [tensor(type_)])[0]
    assert out.tolist() == [[1, 6], [7, 4]]


def test_select_of_integers_ignores_scales() -> None:
    inputs = [of(BOOL, [True, False]), of(I32, [300, 1], 0.5), of(I32, [1, -300], 0.25)]
    assert run(Op.SELECT, inputs, [tensor(I32, (), 1)])[0].tolist() == [300, -300]


@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_select_converts_values_to_the_outputs_scale(type_: T, shift: int) -> None:
    condition = of(BOOL, [True, True, True, False, False])
    a = of(type_, np.array([3, 0, 255, 9, 9]) + shift, 0.5, 2 + shift)  # 0.5, -1, 126.5
    b = of(type_, np.array([9, 9, 9, 17, 0]) + shift, 4, 10 + shift)  # 28, -40
    out = run(Op.SELECT, [condition, a, b], [tensor(type_, (), 1, 20 + shift)])[0]
    # unsigned: 20.5, 19, 146.5, 48, -20; signed: -107.5, -109, 18.5, -80, -148: ties away from zero, then clamped
    assert out.tolist() == ([21, 19, 147, 48, 0] if type_ == U8 else [-108, -109, 19, -80, -128])


TRUE, F = of(BOOL, [True, False]), of(F32, [1, 2])
WRONG: list[tuple[Op, list[Value], Operand, str]] = [
    (Op.LOGICAL_AND, [TRUE, of(BOOL, [True] * 3)], OUT, "cannot be broadcast"),
    (Op.LOGICAL_OR, [TRUE, of(BOOL, [True] * 3)], OUT, "cannot be broadcast"),
    (Op.SELECT, [TRUE, F, of(F32, [1])], tensor(F32), r"if_false has shape \[1\], condition \[2\]; they must be equal"),
    (Op.SELECT, [TRUE, of(F32, [[1, 2]]), F], tensor(F32), r"if_true has shape \[1, 2\], condition \[2\]"),
    (Op.LOGICAL_NOT, [(tensor(BOOL), np.zeros((0, 2), np.bool_))], OUT, "input has no elements"),
    (Op.LOGICAL_AND, [TRUE, (tensor(BOOL), np.zeros((0,), np.bool_))], OUT, "y has no elements"),
    (Op.SELECT, [(tensor(BOOL), np.zeros((0,), np.bool_)), F, F], tensor(F32), "condition has no elements"),
]


@pytest.mark.parametrize(("type_", "inputs", "output", "message"), WRONG)
def test_broken_constraints(type_: Op, inputs: list[Value], output: Operand, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run_kernel(type_, inputs, [output])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@pytest.mark.parametrize("type_", [Op.LOGICAL_AND, Op.LOGICAL_OR])
@settings(max_examples=20, deadline=None)
@given(mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, min_side=1, max_side=4), SEEDS)
def test_logic_agrees_with_litert(type_: Op, shapes: BroadcastableShapes, rng: np.random.Generator) -> None:
    inputs = [(operand, sample(rng, operand)) for operand in (tensor(BOOL, shape) for shape in shapes.input_shapes)]
    output = tensor(BOOL, shapes.result_shape)
    np.testing.assert_array_equal(run(type_, inputs, [output])[0], litert(type_.name, None, inputs, [output])[0])


@settings(max_examples=20, deadline=None)
@given(array_shapes(max_dims=4, max_side=4), SEEDS, st.sampled_from([F32, I32, U8, I8]))
def test_select_agrees_with_litert(shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    output = tensor(type_, shape, *((0.5, 3) if type_ in (U8, I8) else ()))
    inputs = [(operand, sample(rng, operand)) for operand in (tensor(BOOL, shape), output, output)]
    np.testing.assert_array_equal(run(Op.SELECT, inputs, [output])[0], litert("SELECT", None, inputs, [output])[0])
