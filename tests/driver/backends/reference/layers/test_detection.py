"""Object detection on CpuRef: cases computed by hand, and comparison with plain loops and LiteRT."""

from collections.abc import Mapping
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import Value, boolean, float32, int32, run, run_kernel, tensor

FLOAT, INT, QUANT8, QUANT16 = T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT16_ASYMM
HARD, LINEAR, GAUSSIAN = range(3)


def value(type_: T, data: ArrayLike, scale: float = 0, zero_point: int = 0) -> Value:
    """Return an argument as large as its data."""
    array = np.asarray(data)
    return tensor(type_, array.shape, scale, zero_point), array


def f32(data: ArrayLike) -> AnyArray:
    """Return an array of float32."""
    return np.asarray(data, np.float32)


# ---- AXIS_ALIGNED_BBOX_TRANSFORM ------------------------------------------------------------------------


def test_boxes_move_and_are_clipped() -> None:
    deltas = [[0.1, 0, log(2), 0, 0, 0, 0, 0]]
    arguments = [value(FLOAT, [[10, 10, 30, 50]]), value(FLOAT, deltas), value(INT, [1])]
    out = run(
        Op.AXIS_ALIGNED_BBOX_TRANSFORM,
        [*arguments, value(FLOAT, [[100, 100], [45, 40]])],
        [tensor(FLOAT, (1, 8))],
    )
    # 20 wide, 40 high, center (20, 30): center to 22, 40 wide: 2..42, but the image is 40 wide and 45 high
    np.testing.assert_allclose(out[0], [[2, 10, 40, 45, 10, 10, 30, 45]], rtol=1e-6)


def test_quantized_boxes_move() -> None:
    arguments = [
        value(QUANT16, [[80, 80, 240, 400]], 0.125),
        value(QUANT8, [[130, 128, 128, 128]], 0.05, 128),
        value(INT, [0]),
        value(QUANT16, [[8000, 8000]], 0.125),
    ]
    out = run(Op.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, [tensor(QUANT16, (1, 4), 0.125)])
    # 0.1 of a width of 20 to the right: 2 pixels, 16 eighths
    np.testing.assert_array_equal(out[0], [[96, 80, 256, 400]])


def test_half_coordinates_round_up_when_quantized() -> None:
    arguments = [value(QUANT16, [[0, 0, 1, 2]], 0.125), value(QUANT8, [[2, 1, 0, 0]], 0.25)]
    out = run(
        Op.AXIS_ALIGNED_BBOX_TRANSFORM,
        [*arguments, value(INT, [0]), value(QUANT16, [[80, 80]], 0.125)],
        [tensor(QUANT16, (1, 4), 0.125)],
    )
    # half of one eighth, and a quarter of two: 0.5, 0.5, 1.5, 2.5
    np.testing.assert_array_equal(out[0], [[1, 1, 2, 3]])


def test_transform_of_no_boxes() -> None:
    arguments = [np.zeros((0, 4)), np.zeros((0, 8))]
    out = run_kernel(
        Op.AXIS_ALIGNED_BBOX_TRANSFORM,
        [*(value(FLOAT, a) for a in arguments), value(INT, np.zeros(0)), value(FLOAT, [[1, 1]])],
        [tensor(FLOAT)],
    )
    assert out[0].shape == (0, 8)


BOX, DELTA, IMAGE = [[0, 0, 1, 1]], [[0, 0, 0, 0]], [[9, 9]]


@pytest.mark.parametrize(
    ("box", "deltas", "batches", "image", "message"),
    [
        ([0, 0, 1, 1], DELTA, [0], IMAGE, r"roi has shape \[4\]; it must be \[1, 4\]"),
        (BOX, [[0, 0, 0]], [0], IMAGE, "bbox_deltas has 3 columns"),
        (BOX, np.zeros((1, 0)), [0], IMAGE, "bbox_deltas has 0 columns"),
        (BOX, DELTA, [0, 0], IMAGE, r"batches has shape \[2\]"),
        (BOX, DELTA, [0], [[9]], r"image_info has shape \[1, 1\]; it must be \[1, 2\]"),
        (BOX, DELTA, [0], np.zeros((0, 2)), "image_info has no rows"),
        (BOX, DELTA, [1], IMAGE, r"batches in row \[0\]: it must be in 0..0"),
        ([[0, 2, 1, 1]], DELTA, [0], IMAGE, r"roi in row \[0\]: x1 <= x2 and y1 <= y2 must hold"),
        ([[0, 0, np.nan, 1]], DELTA, [0], IMAGE, "must hold"),
    ],
)
def test_wrong_boxes_fail_the_run(
    box: ArrayLike, deltas: ArrayLike, batches: ArrayLike, image: ArrayLike, message: str
) -> None:
    arguments = [value(FLOAT, box), value(FLOAT, deltas), value(INT, batches), value(FLOAT, image)]
    with pytest.raises(HalError, match=message):
        run_kernel(Op.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, [tensor(FLOAT)])


def test_coordinates_must_have_scale_one_eighth() -> None:
    arguments = [value(QUANT16, BOX, 0.125), value(QUANT8, DELTA, 1), value(INT, [0]), value(QUANT16, IMAGE, 0.5)]
    with pytest.raises(HalError, match=r"image_info has scale 0\.5, zero point 0; it must have 0\.125, 0"):
        run(Op.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, [tensor(QUANT16, (1, 4), 0.125)])
    arguments[3] = value(QUANT16, IMAGE, 0.125)
    with pytest.raises(HalError, match=r"output has scale 0\.25"):
        run(Op.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, [tensor(QUANT16, (1, 4), 0.25)])


# ---- BOX_WITH_NMS_LIMIT ---------------------------------------------------------------------------------


def limits(
    most: int, kernel: int, iou: float = 0.5, *, above: float = 0, sigma: float = 1, keep: float = 0
) -> list[Value]:
    """Return the scalars of BOX_WITH_NMS_LIMIT."""
    return [float32(above), int32(most), int32(kernel), float32(iou), float32(sigma), float32(keep)]


def select_boxes(scores: ArrayLike, boxes: ArrayLike, batches: ArrayLike, scalars: list[Value]) -> list[AnyArray]:
    """Run BOX_WITH_NMS_LIMIT on floats."""
    arguments = [value(FLOAT, scores), value(FLOAT, boxes), value(INT, batches), *scalars]
    return run_kernel(Op.BOX_WITH_NMS_LIMIT, arguments, [tensor(FLOAT), tensor(FLOAT), tensor(INT), tensor(INT)])


ROW = [0, 0, 10, 10]
SHIFTED = [0, 5, 10, 15]
"""Overlaps ROW by a third: 50 of 150."""
FAR = [50, 50, 60, 60]


def two_classes(*boxes: list[int]) -> AnyArray:
    """Rows of the same box for the background and for one class."""
    return np.array([box * 2 for box in boxes])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(HARD, [0.9, 0.6, 0]), (LINEAR, [0.9, 0.6, 0.8 * (1 - 1 / 3)]), (GAUSSIAN, [0.9, 0.8 * exp(-1 / 9 / 0.5), 0.6])],
)
def test_kernels_lower_the_scores_of_overlapping_boxes(kernel: int, expected: list[float]) -> None:
    scores = [[1, 0.9], [1, 0.8], [1, 0.6]]
    out = select_boxes(scores, two_classes(ROW, SHIFTED, FAR), [0] * 3, limits(-1, kernel, 0.3, sigma=0.5))
    expected_boxes = [ROW, SHIFTED, FAR] if kernel == GAUSSIAN else [ROW, FAR, SHIFTED]
    np.testing.assert_allclose(out[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(out[1], expected_boxes)
    np.testing.assert_array_equal(out[2], [1] * 3)


def test_boxes_that_overlap_by_the_threshold_are_dropped() -> None:
    same = select_boxes([[0, 0.9], [0, 0.8]], two_classes(ROW, SHIFTED), [0, 0], limits(-1, HARD, 1 / 3, keep=0.1))
    more = select_boxes([[0, 0.9], [0, 0.8]], two_classes(ROW, SHIFTED), [0, 0], limits(-1, HARD, 0.34, keep=0.1))
    assert (len(same[0]), len(more[0])) == (1, 2)


def test_scores_at_the_threshold_are_dropped() -> None:
    out = select_boxes([[0, 0.5], [0, 0.75]], two_classes(ROW, FAR), [0, 0], limits(-1, HARD, above=0.5))
    np.testing.assert_array_equal(out[0], [0.75])


def test_gaps_are_filled_from_the_end() -> None:
    # the second and third are dropped: the last box fills the first gap
    scores = [[0, 0.9], [0, 0.8], [0, 0.7], [0, 0.5], [0, 0.5]]
    boxes = [ROW, ROW, ROW, FAR, [80, 80, 90, 90]]
    out = select_boxes(scores, two_classes(*boxes), [0] * 5, limits(-1, HARD, keep=0.1))
    np.testing.assert_array_equal(out[1], [ROW, boxes[4], FAR])


def test_each_image_has_its_own_limit_and_order() -> None:
    scores = [[0, 0.5, 0.6], [0, 0.9, 0.2], [0, 0.1, 0.3]]
    out = select_boxes(scores, [ROW * 3, FAR * 3, ROW * 3], [7, 7, 2], limits(2, HARD))
    # image 7 keeps 0.9 and 0.6, by class; image 2 keeps both
    np.testing.assert_array_equal(out[0], f32([0.9, 0.6, 0.1, 0.3]))
    np.testing.assert_array_equal(out[1], [FAR, ROW, ROW, ROW])
    np.testing.assert_array_equal(out[2], [1, 2, 1, 2])
    np.testing.assert_array_equal(out[3], [7, 7, 2, 2])


def test_quantized_boxes_are_copied() -> None:
    arguments = [
        value(QUANT8, [[0, 200], [0, 100]], 0.01, 100),
        value(QUANT16, two_classes(ROW, FAR), 0.125),
        value(INT, [3, 3]),
        *limits(-1, HARD),
    ]
    outputs = [tensor(QUANT8, (), 0.01, 100), tensor(QUANT16, (), 0.125), tensor(INT), tensor(INT)]
    scores, boxes, classes, batches = run(Op.BOX_WITH_NMS_LIMIT, arguments, outputs)
    assert (scores.tolist(), boxes.tolist(), classes.tolist(), batches.tolist()) == ([200], [ROW], [1], [3])
    with pytest.raises(HalError, match=r"scores_out has scale 0\.02"):
        run(Op.BOX_WITH_NMS_LIMIT, arguments, [tensor(QUANT8, (), 0.02, 100), *outputs[1:]])


def test_no_boxes_give_empty_outputs() -> None:
    out = select_boxes(np.zeros((0, 2)), np.zeros((0, 8)), [], limits(1, 5))
    assert [array.shape for array in out] == [(0,), (0, 4), (0,), (0,)]


@pytest.mark.parametrize(
    ("scores", "boxes", "batches", "kernel", "message"),
    [
        ([[1]], [ROW], [0], HARD, "scores has 1 columns; it must have more than one class"),
        ([1, 1], [ROW], [0], HARD, "scores has rank 1; it must be 2"),
        ([[1, 1]], [ROW], [0], HARD, r"roi has shape \[1, 4\]; it must be \[1, 8\]"),
        ([[1, 1]], [ROW * 2], [0, 0], HARD, r"batches has shape \[2\]; it must be \[1\]"),
        ([[1, 1]], [ROW * 2], [-1], HARD, r"batches in row \[0\]: it must be >= 0"),
        ([[1, 1]], [ROW * 2], [0], 3, "nms_kernel is 3; it must be in 0..2"),
        ([[1, 1]], [[*ROW, 5, 5, 4, 5]], [0], HARD, r"roi in row \[0\]: x1 <= x2"),
    ],
)
def test_wrong_limits_fail_the_run(
    scores: ArrayLike, boxes: ArrayLike, batches: ArrayLike, kernel: int, message: str
) -> None:
    with pytest.raises(HalError, match=message):
        select_boxes(scores, boxes, batches, limits(1, kernel))


def test_output_count_must_be_as_declared() -> None:
    arguments = [value(FLOAT, [[0, 1]]), value(FLOAT, [ROW * 2]), value(INT, [0]), *limits(-1, HARD)]
    outputs = [tensor(FLOAT, (2,)), tensor(FLOAT, (2, 4)), tensor(INT, (2,)), tensor(INT, (2,))]
    with pytest.raises(HalError, match=r"output 0 has shape \[1\], declared \[2\]"):
        run(Op.BOX_WITH_NMS_LIMIT, arguments, outputs)


def plain_iou(a: AnyArray, b: AnyArray) -> np.float32:
    """Return the intersection over union in float32, computed value by value."""
    width = max(min(a[2], b[2]) - max(a[0], b[0]), np.float32(0))
    height = max(min(a[3], b[3]) - max(a[1], b[1]), np.float32(0))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    common = width * height
    return np.float32(common / (areas[0] + areas[1] - common))


def plain_suppression(
    boxes: AnyArray, scores: AnyArray, limit: int, kernel: int, threshold: float, keep: float
) -> list[tuple[int, np.float32]]:
    """Suppress one by one as the operation files define. Hard suppression drops overlapping boxes if `keep` > 0."""
    pending, score = list(range(len(scores))), list(scores)
    selected: list[tuple[int, np.float32]] = []
    while pending and len(selected) != limit:
        best = max(range(len(pending)), key=lambda i: score[pending[i]])
        pending[0], pending[best] = pending[best], pending[0]
        front = pending.pop(0)
        selected.append((front, score[front]))
        i = 0
        while i < len(pending):
            iou = plain_iou(boxes[front], boxes[pending[i]])
            factors = (np.float32(0), 1 - iou, np.exp(-iou * iou / np.float32(0.5)))
            score[pending[i]] *= factors[kernel] if kernel == GAUSSIAN or iou >= np.float32(threshold) else 1
            if score[pending[i]] < np.float32(keep):
                pending[i] = pending[-1]
                pending.pop()
            else:
                i += 1
    return selected


def random_boxes(rng: np.random.Generator, *shape: int) -> AnyArray:
    """Return boxes [*shape, 4] on a coarse grid, so that they often overlap and often have the same size."""
    low = rng.integers(0, 6, (*shape, 2))
    return np.concatenate([low, low + rng.integers(1, 5, (*shape, 2))], axis=-1).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_suppression_agrees_with_plain_loops(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, classes, kernel = draw(st.integers(1, 15)), draw(st.integers(2, 3)), draw(st.integers(0, 2))
    most, keep = draw(st.sampled_from([-1, 0, 3])), draw(st.sampled_from([0, 0.3]))
    # few different scores, to test the order of boxes with equal scores
    scores = rng.integers(0, 6, (rows, classes)).astype(np.float32) / 5
    boxes = random_boxes(rng, rows, classes)
    batches = np.sort(rng.integers(0, 2, rows))
    out = select_boxes(
        scores, boxes.reshape(rows, -1), batches, limits(most, kernel, 0.4, above=0.3, sigma=0.5, keep=keep)
    )
    expected = []
    for image in np.unique(batches):
        detections_ = []
        for class_ in range(1, classes):
            candidates = [row for row in range(rows) if batches[row] == image and scores[row, class_] > 0.3]
            of_class = boxes[candidates, class_], scores[candidates, class_]
            detections_ += [
                (score, class_, candidates[i]) for i, score in plain_suppression(*of_class, most, kernel, 0.4, keep)
            ]
        best = sorted(detections_, key=lambda detection: -detection[0])[: most if most >= 0 else None]
        expected += sorted(best, key=lambda detection: detection[1])
    np.testing.assert_array_equal(out[0], np.array([score for score, _, _ in expected], np.float32))
    np.testing.assert_array_equal(out[1], np.array([boxes[row, c] for _, c, row in expected]).reshape(-1, 4))
    np.testing.assert_array_equal(out[2], [class_ for _, class_, _ in expected])
    np.testing.assert_array_equal(out[3], [batches[row] for _, _, row in expected])


# ---- GENERATE_PROPOSALS ---------------------------------------------------------------------------------


def run_proposals(
    scores: ArrayLike,
    deltas: ArrayLike,
    anchors: ArrayLike,
    image: ArrayLike,
    *,
    most: tuple[int, int] = (-1, -1),
    iou: float = 0.5,
    smallest: float = 0,
    nchw: bool = False,
) -> list[AnyArray]:
    """Run GENERATE_PROPOSALS on floats with strides 8 (rows) and 4 (columns); `most` are before and after."""
    arguments = [value(FLOAT, data) for data in (scores, deltas, anchors, image)]
    scalars = [float32(8), float32(4), *map(int32, most), float32(iou), float32(smallest), boolean(nchw)]
    return run_kernel(Op.GENERATE_PROPOSALS, [*arguments, *scalars], [tensor(FLOAT), tensor(FLOAT), tensor(INT)])


def test_proposals_are_shifted_anchors() -> None:
    scores = np.array([0.1, 0.2, 0.4, 0.3]).reshape(1, 2, 2, 1)
    out = run_proposals(scores, np.zeros((1, 2, 2, 4)), [[0, 0, 2, 2]], [[20, 20]])
    np.testing.assert_array_equal(out[0], f32([0.4, 0.3, 0.2, 0.1]))
    np.testing.assert_array_equal(out[1], [[0, 8, 2, 10], [4, 8, 6, 10], [4, 0, 6, 2], [0, 0, 2, 2]])
    np.testing.assert_array_equal(out[2], [0] * 4)
    limited = run_proposals(scores, np.zeros((1, 2, 2, 4)), [[0, 0, 2, 2]], [[20, 20]], most=(3, 2))
    np.testing.assert_array_equal(limited[0], f32([0.4, 0.3]))
    assert len(run_proposals(scores, np.zeros((1, 2, 2, 4)), [[0, 0, 2, 2]], [[20, 20]], most=(1, -1))[0]) == 1
    assert len(run_proposals(scores, np.zeros((1, 2, 2, 4)), [[0, 0, 2, 2]], [[20, 20]], most=(0, 0))[0]) == 0


def test_small_boxes_and_boxes_outside_the_image_are_dropped() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.4]).reshape(1, 1, 1, 4)
    # the last but one has height 2, which is not above the minimum; the last is clipped to an empty box
    anchors = [[0, 0, 3, 3], [5, 5, 9, 9], [0, 0, 9, 2], [30, 0, 35, 9]]
    out = run_proposals(scores, np.zeros((1, 1, 1, 16)), anchors, [[20, 20]], smallest=2)
    np.testing.assert_array_equal(out[0], f32([0.2, 0.1]))


def test_proposals_that_overlap_by_the_threshold_are_dropped() -> None:
    scores, anchors = np.array([[[[0.9, 0.8]]]]), [[0, 0, 2, 2], [1, 0, 3, 2]]
    for threshold, count in ((1 / 3, 1), (0.34, 2)):
        assert len(run_proposals(scores, np.zeros((1, 1, 1, 8)), anchors, [[9, 9]], iou=threshold)[0]) == count


def test_proposals_are_moved_by_deltas() -> None:
    deltas = np.array([0.5, 0, 0, log(3), 0, 0, 0, 0]).reshape(1, 1, 1, 8)
    out = run_proposals([[[[0.9, 0.8]]]], deltas, [[4, 10, 8, 14], [4, 10, 8, 14]], [[17, 50]])
    # 2 to the right, three times as high about 12: 6..18, clipped to 17; overlap with the other 2 * 4 of 44 + 16 - 8
    np.testing.assert_allclose(out[1], [[6, 6, 10, 17], [4, 10, 8, 14]], rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_proposals_agree_with_plain_loops(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images, height, width, anchors = (draw(st.integers(1, n)) for n in (2, 4, 4, 3))
    most = draw(st.sampled_from([0, 5])), draw(st.sampled_from([-1, 4]))
    nchw = draw(st.booleans(), "nchw")
    scores = rng.permutation(images * height * width * anchors).reshape(images, height, width, anchors)
    base = random_boxes(rng, anchors)
    laid_out = scores.transpose(0, 3, 1, 2) if nchw else scores
    deltas = np.zeros((images, 4 * anchors, height, width) if nchw else (images, height, width, 4 * anchors))
    out = run_proposals(laid_out, deltas, base, [[30, 14]] * images, most=most, iou=0.3, smallest=1, nchw=nchw)
    expected = []
    for image, row, column, anchor in sorted(np.ndindex(scores.shape), key=lambda index: (index[0], -scores[index])):
        box = np.clip(base[anchor] + f32([4 * column, 8 * row] * 2), 0, f32([14, 30] * 2))
        expected.append((image, scores[image, row, column, anchor], box))
    for image in range(images):
        of_image = [proposal for proposal in expected if proposal[0] == image][: most[0] or None]
        large = [(score, box) for _, score, box in of_image if box[2] - box[0] > 1 and box[3] - box[1] > 1]
        boxes, values = np.array([box for _, box in large]), f32([score + 1 for score, _ in large])
        order = [i for i, _ in plain_suppression(boxes, values, most[1], HARD, 0.3, 0.5)]
        rows = out[2] == image
        np.testing.assert_array_equal(out[0][rows], [large[i][0] for i in order])
        np.testing.assert_array_equal(out[1][rows], np.array([large[i][1] for i in order]).reshape(-1, 4))


SCORES = np.zeros((1, 1, 2, 1))


@pytest.mark.parametrize(
    ("scores", "deltas", "anchors", "image", "message"),
    [
        (SCORES[0], np.zeros((1, 1, 2, 4)), BOX, IMAGE, "scores has rank 3; it must be 4"),
        (
            SCORES,
            np.zeros((1, 1, 2, 8)),
            BOX,
            IMAGE,
            r"bbox_deltas has shape \[1, 1, 2, 8\] as NHWC; it must be \[1, 1",
        ),
        (SCORES, np.zeros((1, 1, 2, 4)), BOX * 2, IMAGE, r"anchors has shape \[2, 4\]; it must be \[1, 4\]"),
        (SCORES, np.zeros((1, 1, 2, 4)), BOX, IMAGE * 2, r"image_info has shape \[2, 2\]; it must be \[1, 2\]"),
        (SCORES, np.zeros((1, 1, 2, 4)), [[0, 1, 1, 0]], IMAGE, r"anchors in row \[0\]: x1 <= x2"),
        (SCORES[:0], np.zeros((0, 1, 2, 4)), BOX, IMAGE, "scores has no elements"),
    ],
)
def test_wrong_proposals_fail_the_run(
    scores: ArrayLike, deltas: ArrayLike, anchors: ArrayLike, image: ArrayLike, message: str
) -> None:
    with pytest.raises(HalError, match=message):
        run_proposals(scores, deltas, anchors, image)


@pytest.mark.parametrize(
    ("type_", "zero_point", "message"), [(QUANT8, 128, "anchors has scale 1"), (T.TENSOR_QUANT8_ASYMM_SIGNED, 0, "")]
)
def test_quantized_proposals(type_: T, zero_point: int, message: str) -> None:
    def propose(scale: float) -> list[AnyArray]:
        arguments = [
            value(type_, np.full((1, 1, 1, 1), zero_point + 5), 0.1, zero_point),
            value(type_, np.full((1, 1, 1, 4), zero_point), 0.5, zero_point),
            value(T.TENSOR_QUANT16_SYMM, [[-8, 0, 16, 24]], scale),
            value(QUANT16, [[800, 800]], 0.125),
        ]
        scalars = [float32(1), float32(1), int32(-1), int32(-1), float32(0.5), float32(0), boolean(False)]
        outputs = [tensor(type_, (), 0.1, zero_point), tensor(QUANT16, (), 0.125), tensor(INT)]
        return run(Op.GENERATE_PROPOSALS, [*arguments, *scalars], outputs)

    out = propose(0.125)
    assert out[0].tolist() == [zero_point + 5]
    assert out[1].tolist() == [[0, 0, 16, 24]]
    if message:
        with pytest.raises(HalError, match=message):
            propose(1)
    else:
        assert propose(1)[1].tolist() == [[0, 0, 128, 192]]


# ---- DETECTION_POSTPROCESSING ---------------------------------------------------------------------------


def detections(
    scores: ArrayLike,
    deltas: ArrayLike,
    anchors: ArrayLike,
    *,
    scale: tuple[float, float] = (1, 1),
    regular: bool = False,
    most: tuple[int, int, int] = (3, 1, 2),
    above: float = 0.1,
    iou: float = 0.5,
    background: bool = True,
) -> list[AnyArray]:
    """Run DETECTION_POSTPROCESSING on floats. `scale`: of centers and of sizes; `most`: of all, classes, per class."""
    arguments = [value(FLOAT, data) for data in (scores, deltas, anchors)]
    scalars = [float32(scale[0])] * 2 + [float32(scale[1])] * 2 + [boolean(regular), *map(int32, most)]
    scalars += [float32(above), float32(iou), boolean(background)]
    outputs = [tensor(FLOAT), tensor(FLOAT), tensor(INT), tensor(INT)]
    return run_kernel(Op.DETECTION_POSTPROCESSING, [*arguments, *scalars], outputs)


ANCHORS = [[5, 5, 10, 10], [5, 6, 10, 10], [55, 55, 10, 10]]
"""Two boxes that overlap by 90 of 110, and one far away."""


def test_fast_detection() -> None:
    scores = [[[0, 0.9, 0.3], [0, 0.2, 0.8], [0, 0.6, 0.7]]]
    deltas = np.zeros((1, 3, 5))
    deltas[0, 2, 2] = log(2) * 5
    out = detections(scores, deltas, ANCHORS, scale=(1, 5), most=(3, 2, 1), background=False)
    np.testing.assert_array_equal(out[0], f32([[0.9, 0.3, 0.7, 0.6, 0, 0]]))
    far = [45, 50, 65, 60]
    np.testing.assert_allclose(out[1], [[[0, 0, 10, 10]] * 2 + [far] * 2 + [[0] * 4] * 2], rtol=1e-6)
    np.testing.assert_array_equal(out[2], [[0, 1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(out[3], [4])


def test_fewer_classes_than_entries_are_packed() -> None:
    out = detections([[[0, 0.9], [0, 0.2], [0, 0.6]]], np.zeros((1, 3, 4)), ANCHORS, most=(2, 3, 1))
    np.testing.assert_array_equal(out[0], f32([[0.9, 0.6, 0, 0, 0, 0]]))
    np.testing.assert_array_equal(out[2], [[1, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(out[3], [2])


def test_regular_detection() -> None:
    scores = np.array([[[0, 0.9, 0.3], [0, 0.2, 0.8], [0, 0.6, 0.7]], [[1, 0, 0]] * 3])
    out = detections(scores, np.zeros((2, 3, 4)), ANCHORS, regular=True, most=(3, 1, 2))
    np.testing.assert_array_equal(out[0], f32([0.9, 0.8, 0.7, 0, 0, 0]).reshape(2, 3))
    np.testing.assert_array_equal(out[2], [[1, 2, 2], [0, 0, 0]])
    np.testing.assert_array_equal(out[3], [3, 0])
    one_each = detections(scores, np.zeros((2, 3, 4)), ANCHORS, regular=True, most=(3, 1, 1))
    np.testing.assert_array_equal(one_each[0][0], f32([0.9, 0.8, 0]))


def test_float16_detection() -> None:
    arguments = [value(T.TENSOR_FLOAT16, d) for d in ([[[0, 0.7]]], np.zeros((1, 1, 4)), [[1, 1, 1, 1]])]
    halves = [(tensor(T.FLOAT16), 1.0)] * 4
    limits_ = [(tensor(T.FLOAT16), 0.1), (tensor(T.FLOAT16), 0.5)]
    scalars = [*halves, boolean(True), int32(1), int32(1), int32(1), *limits_, boolean(True)]
    outputs = [tensor(T.TENSOR_FLOAT16), tensor(T.TENSOR_FLOAT16), tensor(INT), tensor(INT)]
    out = run(Op.DETECTION_POSTPROCESSING, [*arguments, *scalars], outputs)
    np.testing.assert_array_equal(out[0], np.array([[0.7]], np.float16))
    np.testing.assert_array_equal(out[1], [[[0.5, 0.5, 1.5, 1.5]]])


ONE = {"scores": [[[0, 1]]], "deltas": [[[0] * 4]], "anchors": [[1] * 4]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [[0, 1]]}, "scores has rank 2; it must be 3"),
        ({"scores": [[[1]]]}, "scores has 1 classes"),
        ({"deltas": [[[0] * 3]]}, "bbox_deltas has 3 columns; it must have 4 or more"),
        ({"deltas": [[[0] * 4] * 2]}, r"bbox_deltas has shape \[1, 2, 4\]; it must be \[1, 1, 4\]"),
        ({"anchors": [[1] * 4] * 2}, r"anchors has shape \[2, 4\]; it must be \[1, 4\]"),
        ({"scale": (0, 1)}, "scale_y is 0; it must be > 0"),
        ({"scale": (1, -1)}, "scale_h is -1; it must be > 0"),
        ({"above": -0.5}, r"score_threshold is -0\.5; it must be >= 0"),
        ({"iou": -0.5}, r"iou_threshold is -0\.5; it must be >= 0"),
        ({"most": (-1, 1, 1)}, "max_num_detections is -1; it must be > 0"),
        ({"most": (1, 0, 1)}, "max_classes_per_detection is 0; it must be > 0"),
        ({"most": (1, 0, 0), "regular": True}, "max_detections_per_class is 0; it must be > 0"),
        ({"scores": np.zeros((0, 1, 2)), "deltas": np.zeros((0, 1, 4))}, "scores has no elements"),
    ],
)
def test_wrong_detections_fail_the_run(changes: dict[str, object], message: str) -> None:
    with pytest.raises(HalError, match=message):
        detections(**{**ONE, **changes})  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_detection_agrees_with_litert(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    anchors, classes, regular = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.booleans(), "regular")
    most = draw(st.integers(1, 6)), draw(st.integers(1, classes)), draw(st.integers(1, 4))
    scores = rng.random((1, anchors, classes + 1), np.float32)
    deltas = rng.standard_normal((1, anchors, 4)).astype(np.float32)
    boxes = (rng.random((anchors, 4)) + 0.3).astype(np.float32)
    ours = detections(
        scores, deltas, boxes, scale=(10, 5), regular=regular, most=most, above=0.4, iou=0.3, background=False
    )
    options = {
        **{"max_detections": most[0], "max_classes_per_detection": most[1], "detections_per_class": most[2]},
        **{"use_regular_nms": regular, "num_classes": classes},
        **{"nms_score_threshold": 0.4, "nms_iou_threshold": 0.3},
        **{"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
    }
    inputs = [(tensor(FLOAT, array.shape), array) for array in (deltas, scores, boxes)]
    theirs = litert("TFLite_Detection_PostProcess", flexbuffer(options), inputs, [tensor(FLOAT)] * 4)
    count = int(ours[3][0])
    entries = int(theirs[3].item()) * (1 if regular else most[1])
    assert count == entries
    np.testing.assert_array_equal(ours[0][0, :count], theirs[2][0, :count])
    np.testing.assert_array_equal(ours[2][0, :count], theirs[1][0, :count])
    np.testing.assert_allclose(ours[1][0, :count], theirs[0][0, :count], rtol=1e-5, atol=1e-6)


def flexbuffer(options: Mapping[str, float]) -> bytes:
    """Return the options of a custom operator."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        for name, option in options.items():
            builder.Key(name)
            (builder.Bool if isinstance(option, bool) else builder.Add)(option)
    return bytes(builder.Finish())
