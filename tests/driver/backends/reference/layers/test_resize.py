"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, float32, int32, run, run_kernel, sample, tensor

BOTH = [Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR]
NHWC, NCHW = boolean(False), boolean(True)
YES, NO = boolean(True), boolean(False)


def row(*values: float) -> Value:
    return tensor(T.TENSOR_FLOAT32, (1, 1, len(values), 1)), np.reshape(values, (1, 1, -1, 1))


def resize(type_: Op, image: Value, *rest: Value) -> AnyArray:
    operand = image[0]
    return run(type_, [image, *rest], [tensor(T(operand.type), (), operand.scale, operand.zero_point)])[0]


def bilinear(image: Value, *rest: Value) -> list[float]:
    return list(resize(Op.RESIZE_BILINEAR, image, *rest).ravel())


def nearest(image: Value, *rest: Value) -> list[float]:
    return list(resize(Op.RESIZE_NEAREST_NEIGHBOR, image, *rest).ravel())


def test_bilinear_by_hand() -> None:
    size = int32(4), int32(1)
    assert bilinear(row(0, 8), *size) == [0, 4, 8, 8]  # at 0, 0.5, 1, 1.5: constant after the last cell
    assert bilinear(row(0, 9), *size, NHWC, YES) == pytest.approx([0, 3, 6, 9])  # steps of 1/3
    assert bilinear(row(0, 8), *size, NHWC, NO, YES) == [0, 2, 6, 8]  # at -0.25, 0.25, 0.75, 1.25


def test_nearest_by_hand() -> None:
    image, size = row(0, 1, 2, 3), (int32(3), int32(1))
    assert nearest(image, *size, NHWC) == [0, 1, 2]  # at 0, 1.33, 2.67, rounded down
    assert nearest(image, *size, NHWC, YES) == [0, 2, 3]  # at 0, 1.5, 3, ties up
    assert nearest(image, *size, NHWC, NO, YES) == [0, 2, 3]  # at 0.67, 2, 3.33, rounded down


def test_width_comes_before_height() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 2, 3, 5)), np.zeros((1, 2, 3, 5))
    for type_ in BOTH:
        assert resize(type_, image, int32(4), int32(7), NHWC).shape == (1, 7, 4, 5)
        assert resize(type_, image, int32(4), int32(7), NCHW).shape == (1, 2, 7, 4)


def test_factors_round_the_size_down() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 3, 5, 1)), np.zeros((1, 3, 5, 1))
    for type_ in BOTH:
        assert resize(type_, image, float32(1.5), float32(0.7), NHWC).shape == (1, 2, 7, 1)


def test_8_bit_results_are_rounded() -> None:
    for type_, values, expected in (
        (T.TENSOR_QUANT8_ASYMM, [0, 3], [0, 2, 3, 3]),  # 1.5 -> 2
        (T.TENSOR_QUANT8_ASYMM_SIGNED, [0, -3], [0, -2, -3, -3]),  # -1.5 -> -2
    ):
        image = tensor(type_, (1, 1, 2, 1), 0.5, 3), np.reshape(values, (1, 1, 2, 1))
        assert bilinear(image, int32(4), int32(1)) == expected


def test_no_batches_give_an_empty_output() -> None:
    for element in (T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM_SIGNED):
        image = tensor(element, (0, 2, 2, 1)), np.zeros((0, 2, 2, 1))
        for type_ in BOTH:
            out = run_kernel(type_, [image, int32(3), int32(4), NHWC], [tensor(element)])
            assert out[0].shape == (0, 4, 3, 1)


@pytest.mark.parametrize("type_", BOTH)
@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ([int32(0), int32(1), NHWC], "the output's width is 0"),
        ([int32(1), int32(-1), NHWC], "the output's height is -1"),
        ([float32(0.4), float32(1), NHWC], "the output's width is 0"),
        ([float32(float("nan")), float32(1), NHWC], "the output's width is nan"),
        ([float32(1e38), float32(1), NHWC], r"the output's width is 2e\+38"),
        ([int32(2), int32(2), NHWC, YES, YES], "are both true"),
    ],
)
def test_broken_constraint_fails_the_run(type_: Op, rest: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message):
        resize(type_, row(1, 2), *rest)


def test_empty_image_fails_the_run() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 0, 2, 1)), np.zeros((1, 0, 2, 1))
    with pytest.raises(HalError, match="empty image"):
        run_kernel(Op.RESIZE_BILINEAR, [image, int32(2), int32(2)], [tensor(T.TENSOR_FLOAT32)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_agrees_with_litert(data: st.DataObject) -> None:
    draw = data.draw
    type_ = draw(st.sampled_from(BOTH), "operation")
    element = draw(st.sampled_from([T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED]), "type")
    align, half = draw(st.sampled_from([(False, False), (True, False), (False, True)]), "align, half")
    size = st.integers(1, 9)
    shape = (draw(st.integers(1, 2)), draw(size), draw(size), draw(st.integers(1, 2)))
    height, width = draw(size, "height"), draw(size, "width")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, zero_point = (0.0, 0) if element == T.TENSOR_FLOAT32 else (0.1, 5)
    operand = tensor(element, shape, scale, zero_point)
    output = tensor(element, (shape[0], height, width, shape[3]), scale, zero_point)
    value = sample(rng, operand)
    ours = resize(type_, (operand, value), int32(width), int32(height), NHWC, boolean(align), boolean(half))

    s = schema()
    options = s.ResizeBilinearOptionsT() if type_ == Op.RESIZE_BILINEAR else s.ResizeNearestNeighborOptionsT()
    options.alignCorners, options.halfPixelCenters = align, half
    size_tensor = tensor(T.TENSOR_INT32, (2,)), np.array([height, width], np.int32)
    theirs = litert(type_.name, options, [(operand, value), size_tensor], [output])[0]
    if element == T.TENSOR_FLOAT32:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(ours, theirs)
