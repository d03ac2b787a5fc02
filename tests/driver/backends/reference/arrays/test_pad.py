"""PAD, PAD_V2 and MIRROR_PAD on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, float32, float_tensor, int32, int_tensor, run, run_kernel, sample, tensor

F32, F16, U8, I8, I32 = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_INT32,
)
REFLECT, SYMMETRIC = 0, 1
OUT = tensor(F32)
PAIR = float_tensor([[1, 2]])


def test_pad_surrounds_with_zeros() -> None:
    (out,) = run(Op.PAD, [PAIR, int_tensor([[1, 0], [0, 2]])], [OUT])
    assert out.tolist() == [[0, 0, 0, 0], [1, 2, 0, 0]]


@pytest.mark.parametrize("type_", [U8, I8])
def test_pad_of_quantized_values_is_the_zero_point(type_: T) -> None:
    (out,) = run(Op.PAD, [(tensor(type_, (2,), 0.5, 7), [1, 2]), int_tensor([[1, 1]])], [tensor(type_, (), 0.5, 7)])
    assert out.tolist() == [7, 1, 2, 7]


@pytest.mark.parametrize(
    ("operand", "value", "expected"),
    [
        (OUT, float32(0.1), np.float32(0.1)),
        (tensor(F16), (Operand(T.FLOAT16), 0.1), np.float16(0.1)),
        (tensor(U8, (), 0.5, 7), int32(200), 200),
        (tensor(U8, (), 0.5, 7), int32(-1), 255),  # the low 8 bits are used
        (tensor(I8, (), 0.5, 7), int32(200), -56),
    ],
)
def test_pad_v2_surrounds_with_a_value(operand: Operand, value: Value, expected: float) -> None:
    input_ = tensor(T(operand.type), (2,), operand.scale, operand.zero_point), [1, 2]
    (out,) = run(Op.PAD_V2, [input_, int_tensor([[1, 0]]), value], [operand])
    assert out.tolist() == [expected, 1, 2]


@pytest.mark.parametrize(
    ("mode", "paddings", "expected"),
    [
        (REFLECT, [[1, 1], [2, 0]], [[6, 5, 4, 5, 6], [3, 2, 1, 2, 3], [6, 5, 4, 5, 6], [3, 2, 1, 2, 3]]),
        (SYMMETRIC, [[1, 0], [2, 1]], [[2, 1, 1, 2, 3, 3], [2, 1, 1, 2, 3, 3], [5, 4, 4, 5, 6, 6]]),
    ],
)
def test_mirror_pad_by_hand(mode: int, paddings: list[list[int]], expected: list[list[float]]) -> None:
    (out,) = run(Op.MIRROR_PAD, [float_tensor([[1, 2, 3], [4, 5, 6]]), int_tensor(paddings), int32(mode)], [OUT])
    assert out.tolist() == expected


WRONG: list[tuple[Op, list[Value], str]] = [
    (Op.PAD, [PAIR, int_tensor([[0, 0]])], r"paddings has shape \[1, 2\]; it must be \[2, 2\]"),
    (Op.PAD, [PAIR, int_tensor([0, 0, 0, 0])], r"paddings has shape \[4\]"),
    (Op.PAD, [PAIR, int_tensor([[0, 0], [0, -1]])], "has a negative value"),
    (Op.PAD_V2, [PAIR, int_tensor([[0, 0], [-1, 0]]), float32(0)], "has a negative value"),
    (Op.MIRROR_PAD, [PAIR, int_tensor([[0, 0], [0, 0]]), int32(2)], "mode is 2; it must be 0 or 1"),
    (Op.MIRROR_PAD, [PAIR, int_tensor([[0, 0], [0, 2]]), int32(REFLECT)], "dimension 1 are .* at most 1"),
    (Op.MIRROR_PAD, [PAIR, int_tensor([[1, 0], [0, 0]]), int32(REFLECT)], "dimension 0 are .* at most 0"),
    (Op.MIRROR_PAD, [PAIR, int_tensor([[0, 0], [0, 3]]), int32(SYMMETRIC)], "dimension 1 are .* at most 2"),
    (Op.MIRROR_PAD, [PAIR, int_tensor([[0, 0], [-1, 0]]), int32(SYMMETRIC)], "has a negative value"),
]


@pytest.mark.parametrize(("type_", "inputs", "message"), WRONG)
def test_broken_constraints_fail_the_run(type_: Op, inputs: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, [OUT])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


@pytest.mark.parametrize(
    ("type_", "rest", "status"),
    [
        (Op.PAD, [], ErrorStatus.INVALID_ARGUMENT),
        (Op.PAD_V2, [float32(0)], ErrorStatus.INVALID_ARGUMENT),
        (Op.MIRROR_PAD, [int32(0)], ErrorStatus.GENERAL_FAILURE),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, rest: list[Value], status: ErrorStatus) -> None:
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(type_, [(OUT, np.zeros(0)), int_tensor([[0, 0]]), *rest], [OUT])
    assert error.value.status == status


@pytest.mark.parametrize(("type_", "rest"), [(Op.PAD, []), (Op.PAD_V2, [int32(0)])])
def test_outputs_are_quantized_as_the_input(type_: Op, rest: list[Value]) -> None:
    with pytest.raises(HalError, match="output has scale 1, zero point 3; input has"):
        run(type_, [(tensor(U8, (1,), 0.5, 3), [1]), int_tensor([[0, 0]]), *rest], [tensor(U8, (), 1, 3)])


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 2**32 - 1).map(np.random.default_rng),
    st.sampled_from([F32, U8, I8]),
)
def test_agrees_with_litert(data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    quantization = (0.0, 0) if type_ == F32 else (0.5, 3)
    image, out = tensor(type_, shape, *quantization), tensor(type_, (), *quantization)
    value = image, sample(rng, image)

    def paddings(most: list[int]) -> tuple[Operand, np.ndarray[tuple[int, int], np.dtype[np.int32]]]:
        pairs = [[data.draw(st.integers(0, limit)) for _ in "ba"] for limit in most]
        return tensor(I32, (len(shape), 2)), np.array(pairs, np.int32)

    zeros = paddings([3] * len(shape))
    ours = run(Op.PAD, [value, zeros], [out])[0]
    np.testing.assert_array_equal(ours, litert("PAD", schema().PadOptionsT(), [value, zeros], [out])[0])

    fill = tensor(type_, (1,), *quantization)
    filled = fill, sample(rng, fill)
    scalar = float32(filled[1].item()) if type_ == F32 else int32(filled[1].item())
    ours = run(Op.PAD_V2, [value, zeros, scalar], [out])[0]
    np.testing.assert_array_equal(ours, litert("PADV2", schema().PadV2OptionsT(), [value, zeros, filled], [out])[0])

    options = schema().MirrorPadOptionsT()
    options.mode = mode = data.draw(st.sampled_from([REFLECT, SYMMETRIC]))
    mirrored = paddings([length - 1 + mode for length in shape])
    ours = run(Op.MIRROR_PAD, [value, mirrored, int32(mode)], [out])[0]
    np.testing.assert_array_equal(ours, litert("MIRROR_PAD", options, [value, mirrored], [out])[0])
