"""ROI_ALIGN, ROI_POOLING, HEATMAP_MAX_KEYPOINT on CpuRef: cases computed by hand, and comparison with plain loops."""

from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import Value, boolean, float32, int32, run, run_kernel, tensor

FLOAT, QUANT8 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM


def value(type_: T, data: ArrayLike, scale: float = 0, zero_point: int = 0) -> Value:
    """Return an argument as large as its data."""
    array = np.asarray(data)
    return tensor(type_, array.shape, scale, zero_point), array


def regions(
    image: Value,
    rois: ArrayLike,
    batches: ArrayLike = (0,),
    size: tuple[int, int] = (1, 1),
    ratio: tuple[float, float] = (1, 1),
    sampling: tuple[int, ...] = (),
    nchw: bool = False,
) -> list[Value]:
    """Return arguments of ROI_ALIGN (with `sampling`) or ROI_POOLING. Pairs are height, width."""
    boxes = value(FLOAT, rois) if image[0].type == FLOAT else value(T.TENSOR_QUANT16_ASYMM, rois, 0.125)
    sizes = [*map(int32, size), *map(float32, ratio), *map(int32, sampling)]
    return [image, boxes, value(T.TENSOR_INT32, np.asarray(batches, np.int32)), *sizes, boolean(nchw)]


def unknown(like: Value) -> Operand:
    """Return an output operand of the same type, with rank 4 and unknown dimensions."""
    return tensor(T(like[0].type), (0, 0, 0, 0), like[0].scale, like[0].zero_point)


TWO_BY_TWO = value(FLOAT, [[[[1], [2]], [[3], [4]]]])


def test_roi_align_averages_samples() -> None:
    out = run(Op.ROI_ALIGN, regions(TWO_BY_TWO, [[0, 0, 2, 2]], sampling=(2, 2)), [tensor(FLOAT, (1, 1, 1, 1))])
    # at (0.5, 0.5) all four, at (0.5, 1.5) the right two, at (1.5, 0.5) the lower two, at (1.5, 1.5) the last
    assert out[0].item() == (2.5 + 3 + 3.5 + 4) / 4


def test_roi_align_takes_as_many_samples_as_cells_are_long() -> None:
    image = value(FLOAT, np.arange(16).reshape(1, 4, 4, 1))
    arguments = regions(image, [[0, 0, 8, 4]], size=(2, 1), ratio=(1, 2), sampling=(0, 0))
    out = run(Op.ROI_ALIGN, arguments, [tensor(FLOAT, (1, 2, 1, 1))])
    # columns 0.5 1.5 2.5 and 3 (clamped to the last cell): mean 1.875; rows 0.5 1.5, then 2.5 and 3
    np.testing.assert_array_equal(out[0].ravel(), [4 * 1 + 1.875, 4 * 2.75 + 1.875])


def test_roi_align_rounds_quantized_weights() -> None:
    image = value(QUANT8, np.full((1, 2, 2, 1), 60), 1, 10)
    out = run(Op.ROI_ALIGN, regions(image, [[0, 0, 8, 8]], sampling=(1, 1)), [tensor(QUANT8, (1, 1, 1, 1), 0.25, 3)])
    # one sample at (0.5, 0.5): four times round(0.25 * 255) = 64; 4 * 64 * 50 / 255 / 0.25 = 200.8
    assert out[0].item() == 3 + 201


def test_quantized_weights_round_to_nearest_and_stop_at_the_edge() -> None:
    output = tensor(QUANT8, (1, 1, 1, 1), 0.25, 3)
    image = value(QUANT8, np.full((1, 1, 3, 1), 60), 1, 10)
    out = run(Op.ROI_ALIGN, regions(image, [[15, 0, 15, 0]], ratio=(1, 2), sampling=(1, 1)), [output])
    # at column 1.4375: 7/16 and 9/16 of 255 are 111.6 and 143.4, rounded 112 and 143
    assert out[0].item() == 3 + 255 * 50 * 4 / 255
    image = value(QUANT8, np.full((1, 2, 2, 1), 60), 1, 10)
    out = run(Op.ROI_ALIGN, regions(image, [[8, 8, 16, 16]], sampling=(1, 1)), [output])
    # at (1.5, 1.5) the last cell has all the weight, 255, not four times 64
    assert out[0].item() == 3 + 255 * 50 * 4 / 255


def test_roi_align_of_no_boxes() -> None:
    arguments = regions(TWO_BY_TWO, np.zeros((0, 4)), [], size=(3, 2), sampling=(0, 0))
    assert run_kernel(Op.ROI_ALIGN, arguments, [tensor(FLOAT)])[0].shape == (0, 3, 2, 1)


def test_float16_coordinates_are_computed_in_float16() -> None:
    image = value(T.TENSOR_FLOAT16, np.maximum(np.arange(300) - 257, 0).reshape(1, 1, 300, 1) * 16)
    boxes = value(T.TENSOR_FLOAT16, [[257, 0, 260, 1]])
    scalars = [int32(1), int32(3), (Operand(T.FLOAT16), 1.0), (Operand(T.FLOAT16), 1.0), int32(1), int32(1)]
    arguments = [image, boxes, value(T.TENSOR_INT32, [0]), *scalars, boolean(False)]
    out = run(Op.ROI_ALIGN, arguments, [tensor(T.TENSOR_FLOAT16, (1, 1, 3, 1))])
    # float16 values from 256 on are 0.25 apart: 257.5, 258.5, 259.5 are exact ...
    np.testing.assert_array_equal(out[0].ravel(), [8, 24, 40])
    arguments[3:5] = [int32(1), int32(24)]
    out = run(Op.ROI_ALIGN, arguments, [tensor(T.TENSOR_FLOAT16, (1, 1, 24, 1))])
    # ... but 257 + 1/16 is rounded to 257
    assert out[0][0, 0, 0, 0] == 0


def test_roi_pooling_takes_the_largest() -> None:
    image = value(FLOAT, np.arange(16).reshape(1, 4, 4, 1))
    out = run(Op.ROI_POOLING, regions(image, [[0, 0, 6, 3]], size=(2, 3), ratio=(1, 2)), [unknown(image)])
    # rows 0..1 and 2..3; columns floor(4/3 j) up to ceil(4/3 (j + 1)): 0..1, 1..2, 2..3
    np.testing.assert_array_equal(out[0].reshape(2, 3), [[5, 6, 7], [13, 14, 15]])


@pytest.mark.parametrize(("image", "empty"), [(TWO_BY_TWO, 0), (value(QUANT8, [[[[9], [9]], [[9], [9]]]], 1, 5), 5)])
def test_roi_pooling_outside_is_zero(image: Value, empty: int) -> None:
    edge = 2 if image[0].type == FLOAT else 16
    out = run(Op.ROI_POOLING, regions(image, [[edge] * 4]), [unknown(image)])
    assert out[0].item() == empty


def test_roi_pooling_keeps_nan_only_in_the_first_cell() -> None:
    nan = np.nan
    image = value(FLOAT, np.array([[[[nan], [9], [1], [nan]]]]))
    out = run(Op.ROI_POOLING, regions(image, [[0, 0, 3, 0]], size=(1, 2)), [unknown(image)])
    np.testing.assert_array_equal(out[0].ravel(), [nan, 1])


def heatmap(maps: AnyArray, boxes: ArrayLike, type_: T = FLOAT) -> list[AnyArray]:
    """Run HEATMAP_MAX_KEYPOINT on maps [boxes, keypoints, size, size]."""
    arguments = [value(type_, maps), value(type_, boxes), boolean(True)]
    return run_kernel(Op.HEATMAP_MAX_KEYPOINT, arguments, [tensor(type_), tensor(type_)])


def test_keypoint_is_refined_on_a_parabola() -> None:
    row, column = np.indices((4, 4))
    maps = 10 - (column - 1.25) ** 2 - 2 * (row - 2.125) ** 2
    score, keypoint = heatmap(maps[np.newaxis, np.newaxis], [[8, 16, 16, 48]])
    assert score.item() == 10
    np.testing.assert_array_equal(keypoint, [[[8 + (1.25 + 0.5) / 4 * 8, 16 + (2.125 + 0.5) / 4 * 32]]])


def test_flat_heatmap_gives_its_first_cell() -> None:
    score, keypoint = heatmap(np.full((1, 1, 2, 2), 3), [[0, 0, 2, 4]])
    assert score.item() == 3
    np.testing.assert_array_equal(keypoint, [[[0.5, 1]]])


def test_heatmap_skips_nan_and_mirrors_its_edges() -> None:
    maps = np.array([[[[np.nan, 0, 0], [0, 0, 4], [0, 0, 0]]]])
    score, keypoint = heatmap(maps, [[0, 0, 3, 3]])
    # the mirrored column right of the last equals the one left of it: no slope, the maximum does not move
    assert score.item() == 4
    np.testing.assert_array_equal(keypoint, [[[2.5, 1.5]]])


def test_step_of_a_keypoint_is_limited() -> None:
    maps = np.array([[[[-0.1, -1.2, -4.5], [-2.2, 0, -0.2], [-4.5, -1.2, -0.1]]]])
    score, keypoint = heatmap(maps, [[0, 0, 3, 3]])
    # b = (-1, 0), A = -2.4 2.2 / 2.2 -2.4, det 0.92: d = (2.4, 2.2) / 0.92, shortened to (1.5, 1.375)
    np.testing.assert_allclose(keypoint, [[[1.5 + 1.5, 1.5 + 1.375]]], rtol=1e-5)
    assert score.item() == pytest.approx(1.5 + (-3.6 + 3.025) * 1.5 / 2, rel=1e-5)


def test_tolerance_depends_on_the_type() -> None:
    # curvatures -0.02 and -0.02: the determinant 4e-4 is between both tolerances
    row, column = np.indices((4, 4))
    maps = -0.01 * (column - 1.25) ** 2 - 0.01 * (row - 1.0) ** 2
    boxes = [[0, 0, 4, 4]]
    fine = heatmap(maps[np.newaxis, np.newaxis], boxes)[1]
    coarse = heatmap(maps[np.newaxis, np.newaxis], boxes, T.TENSOR_FLOAT16)[1]
    np.testing.assert_allclose(fine, [[[1.75, 1.5]]], rtol=1e-5)
    np.testing.assert_array_equal(coarse, [[[1.5, 1.5]]])


def test_quantized_keypoint() -> None:
    stored = np.array([[[[0, 0, 0], [0, 200, 100], [0, 0, 0]]]])
    arguments = [value(QUANT8, stored, 0.5), value(T.TENSOR_QUANT16_ASYMM, [[0, 0, 48, 24]], 0.125), boolean(True)]
    outputs = [tensor(QUANT8, (1, 1), 1, 100), tensor(T.TENSOR_QUANT16_ASYMM, (1, 1, 2), 0.125)]
    score, keypoint = run(Op.HEATMAP_MAX_KEYPOINT, arguments, outputs)
    # reals 0 100 50: b0 = -25, A00 = -150, dx = 1/6; A11 = -200; score 100 + 25/6 - 150/72 = 102.083
    assert score.item() == 202
    np.testing.assert_array_equal(keypoint, [[[round((1.5 + 1 / 6) / 3 * 6 * 8), 12]]])


BOX = [[0, 0, 2, 2]]
WRONG = [
    (regions(value(FLOAT, np.zeros((2, 2))), BOX, sampling=(1, 1)), "input has rank 2; it must be 4"),
    (regions(TWO_BY_TWO, [[0, 0, 2]], sampling=(1, 1)), r"rois has shape \[1, 3\]"),
    (regions(TWO_BY_TWO, BOX, [0, 0], sampling=(1, 1)), r"batch_index has shape \[2\]; it must be \[1\]"),
    (regions(TWO_BY_TWO, BOX, [1], sampling=(1, 1)), r"batch_index in row \[0\]: it must be in 0..0"),
    (regions(TWO_BY_TWO, BOX, size=(0, 1), sampling=(1, 1)), "output_height is 0; it must be > 0"),
    (regions(TWO_BY_TWO, BOX, ratio=(1, -0.5), sampling=(1, 1)), "width_ratio is -0.5; it must be > 0"),
    (regions(TWO_BY_TWO, BOX, sampling=(-1, 1)), "height_sampling_ratio is -1; it must be >= 0"),
    (regions(TWO_BY_TWO, [BOX[0], [-1, 0, 2, 2]], [0, 0], sampling=(1, 1)), r"rois in row \[1\]: no coordinate"),
    (regions(TWO_BY_TWO, [[2, 0, 1, 2]], sampling=(1, 1)), "x1 <= x2 and y1 <= y2 must hold"),
    (regions(TWO_BY_TWO, [[0, 0, 2, 5]], ratio=(2, 1), sampling=(1, 1)), "it leaves the feature map of 2 x 2"),
    (regions(TWO_BY_TWO, BOX, size=(1, -1)), "output_width is -1; it must be > 0"),
    (regions(TWO_BY_TWO, np.zeros((0, 4)), []), "rois has no elements"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_regions_fail_the_run(arguments: list[Value], message: str) -> None:
    type_ = Op.ROI_ALIGN if len(arguments) == 10 else Op.ROI_POOLING
    with pytest.raises(HalError, match=message):
        run_kernel(type_, arguments, [tensor(FLOAT)])


def test_quantized_regions_need_scale_one_eighth_and_a_small_multiplier() -> None:
    image = value(QUANT8, np.zeros((1, 2, 2, 1)), 1)
    arguments = regions(image, [[0, 0, 8, 8]], sampling=(1, 1))
    with pytest.raises(HalError, match=r"samples is 1\.9.*; it must be below 1"):
        run(Op.ROI_ALIGN, arguments, [tensor(QUANT8, (1, 1, 1, 1), 0.002)])
    arguments[1] = value(T.TENSOR_QUANT16_ASYMM, [[0, 0, 8, 8]], 0.25)
    with pytest.raises(HalError, match=r"rois has scale 0\.25, zero point 0; it must have 0\.125, 0"):
        run(Op.ROI_ALIGN, arguments, [tensor(QUANT8, (1, 1, 1, 1), 1)])
    with pytest.raises(HalError, match="output has scale 2"):
        run(Op.ROI_POOLING, regions(image, [[0, 0, 8, 8]]), [tensor(QUANT8, (1, 1, 1, 1), 2)])


HEATMAPS = [
    (np.zeros((1, 1, 2, 3)), [[0, 0, 1, 1]], "heatmap is 2 x 3; it must be square"),
    (np.zeros((1, 1, 1, 1)), [[0, 0, 1, 1]], "heatmap is 1 x 1; it must be square"),
    (np.zeros((1, 1, 2, 2)), [[0, 0, 1, 1], [0, 0, 1, 1]], r"boxes has shape \[2, 4\]; it must be \[1, 4\]"),
    (np.zeros((1, 1, 2, 2)), [[0, np.nan, 1, 1]], "x1 <= x2 and y1 <= y2 must hold"),
    (np.zeros((0, 1, 2, 2)), np.zeros((0, 4)), "heatmap has no elements"),
]


@pytest.mark.parametrize(("maps", "boxes", "message"), HEATMAPS)
def test_wrong_heatmaps_fail_the_run(maps: AnyArray, boxes: ArrayLike, message: str) -> None:
    with pytest.raises(HalError, match=message):
        heatmap(maps, boxes)


def plain_align(image: AnyArray, box: AnyArray, size: tuple[int, int], sampling: tuple[int, int]) -> AnyArray:
    """Compute float ROI_ALIGN of one box in cells of the map [height, width, depth], sample by sample."""
    length = [max(float(box[3] - box[1]), 1), max(float(box[2] - box[0]), 1)]
    start = [float(box[1]), float(box[0])]
    step = [length[k] / size[k] for k in range(2)]
    count = [sampling[k] or ceil(step[k]) for k in range(2)]
    out = np.zeros((*size, image.shape[2]))
    for cell in np.ndindex(size):
        for sample in np.ndindex(*count):
            value_ = image.astype(np.float64)
            for k in range(2):
                position = start[k] + step[k] * (cell[k] + (sample[k] + 0.5) / count[k])
                low = min(floor(position), len(value_) - 1)
                share = 0 if low == len(value_) - 1 else position - low
                value_ = value_[low] * (1 - share) + value_[min(low + 1, len(value_) - 1)] * share
            out[cell] += value_ / (count[0] * count[1])
    return out


def plain_pooling(image: AnyArray, box: AnyArray, size: tuple[int, int]) -> AnyArray:
    """Compute ROI_POOLING of one box in cells of the map [height, width, depth], window by window."""
    left, top, right, bottom = (floor(edge + 0.5) for edge in box)
    step = np.float32(max(bottom - top + 1, 1)) / size[0], np.float32(max(right - left + 1, 1)) / size[1]
    out = np.zeros((*size, image.shape[2]), image.dtype)
    for i, j in np.ndindex(size):
        rows = slice(floor(step[0] * i + top), ceil(step[0] * (i + 1) + top))
        columns = slice(floor(step[1] * j + left), ceil(step[1] * (j + 1) + left))
        if image[rows, columns].size:
            out[i, j] = image[rows, columns].max(axis=(0, 1))
    return out


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_regions_agree_with_plain_loops(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batches, height, width, depth = (draw(st.integers(1, n)) for n in (2, 9, 9, 3))
    size = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    sampling = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    ratio = draw(st.sampled_from([(1, 1), (4, 2), (0.5, 8)]))
    nchw = draw(st.booleans(), "nchw")
    image = rng.standard_normal((batches, height, width, depth)).astype(np.float32)
    corners = np.sort(rng.integers(0, 8, (3, 2, 2), endpoint=True) / 8, axis=1) * [width, height]
    cells = corners.reshape(3, 4).astype(np.float32)
    index = rng.integers(0, batches, 3)
    given_ = value(FLOAT, image.transpose(0, 3, 1, 2) if nchw else image)
    rois = cells * np.array([ratio[1], ratio[0]] * 2)
    aligned, pooled = (
        run(type_, regions(given_, rois, index, size, ratio, extra, nchw), [tensor(FLOAT, (0, 0, 0, 0))])[0]
        for type_, extra in ((Op.ROI_ALIGN, sampling), (Op.ROI_POOLING, ()))
    )
    if nchw:
        aligned, pooled = aligned.transpose(0, 2, 3, 1), pooled.transpose(0, 2, 3, 1)
    for i in range(3):
        expected = plain_align(image[index[i]], cells[i], size, sampling)
        np.testing.assert_allclose(aligned[i], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(pooled[i], plain_pooling(image[index[i]], cells[i], size))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_quantized_alignment_is_near_the_real_one(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    type_, low = data.draw(st.sampled_from([(QUANT8, 0), (T.TENSOR_QUANT8_ASYMM_SIGNED, -128)]))
    stored = rng.integers(low, low + 256, (1, 6, 7, 2))
    rois = np.array([[3, 5, 50, 40], [0, 0, 56, 48]])
    arguments = regions(value(type_, stored, 0.1, low + 100), rois, [0, 0], (3, 2), sampling=(0, 2))
    out = run(Op.ROI_ALIGN, arguments, [tensor(type_, (2, 3, 2, 2), 0.2, low + 90)])[0]
    for i, box in enumerate(rois / 8):
        real = plain_align((stored[0] - low - 100) * 0.1, box, (3, 2), (0, 2))
        np.testing.assert_allclose((out[i].astype(int) - low - 90) * 0.2, real, atol=0.1 + 0.12)
