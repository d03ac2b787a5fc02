"""Vectors of operations that move data, with several outputs, omitted inputs, or outputs without elements."""

import numpy as np

from nnhal_tools.conformance.vectors.builtin import register
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case

F32, I32, I8 = "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_QUANT8_ASYMM_SIGNED"


@register
def split_int32() -> Case:
    """Return a SPLIT with three outputs."""
    x = np.arange(12).reshape(2, 6)
    graph = CaseGraph()
    inputs = [graph.input(I32, x.shape), graph.int32(-1), graph.int32(3)]
    graph.apply("SPLIT", inputs, [graph.output(I32, (2, 2)) for _ in range(3)])
    return make_case("split_int32", graph, [x], np.split(x, 3, axis=1))


@register
def topk_float() -> Case:
    """Return a TOPK_V2 with two outputs of different types."""
    x = np.array([[3, 9, -1, 4], [0.5, 0.25, 8, 7]], np.float32)
    order = np.argsort(-x, axis=1)[:, :2]
    graph = CaseGraph()
    outputs = [graph.output(F32, (2, 2)), graph.output(I32, (2, 2))]
    graph.apply("TOPK_V2", [graph.input(F32, x.shape), graph.int32(2)], outputs)
    return make_case("topk_float", graph, [x], [np.take_along_axis(x, order, 1), order])


@register
def concatenation_int8() -> Case:
    """Return a CONCATENATION of signed bytes with the same quantization."""
    a, b = np.array([[1, -128], [3, 4]]), np.array([[127], [-6]])
    graph = CaseGraph()
    inputs = [graph.input(I8, a.shape, 0.5, 2), graph.input(I8, b.shape, 0.5, 2), graph.int32(1)]
    graph.apply("CONCATENATION", inputs, [graph.output(I8, (2, 3), 0.5, 2)])
    return make_case("concatenation_int8", graph, [a, b], [np.concatenate([a, b], 1)])


@register
def transpose_default() -> Case:
    """Return a TRANSPOSE whose model omits the permutation, so that the axes are reversed."""
    x = np.arange(6.0).reshape(2, 3)
    graph = CaseGraph()
    inputs = [graph.input(F32, x.shape), graph.no_value(I32)]
    graph.apply("TRANSPOSE", inputs, [graph.output(F32, (3, 2))])
    return make_case("transpose_default", graph, [x], [x.T])


@register
def svdf_without_bias() -> Case:
    """Return an SVDF whose request omits the bias."""
    rng = np.random.default_rng(8)
    x, features, times = rng.integers(-3, 4, (2, 3)), rng.integers(-3, 4, (4, 3)), rng.integers(-3, 4, (4, 2))
    graph = CaseGraph()
    inputs = [graph.input(F32, x.shape), graph.constant(F32, features), graph.constant(F32, times)]
    inputs += [graph.input(F32, (4,)), graph.input(F32, (2, 8)), graph.int32(1), graph.int32(0)]
    graph.apply("SVDF", inputs, [graph.output(F32, (2, 8)), graph.output(F32, (2, 4))])
    expected = (x @ features.T) * times[:, -1]  # the state, which is the rest of the time window, is zero
    return make_case("svdf_without_bias", graph, [x, None, np.zeros((2, 8))], [np.zeros((2, 8)), expected], ignored=[0])


@register
def no_boxes() -> Case:
    """Return a BOX_WITH_NMS_LIMIT with all scores below the threshold, so that no output has an element."""
    graph = CaseGraph()
    scores, rois = graph.input(F32, (2, 2)), graph.input(F32, (2, 8))
    batches = graph.constant(I32, [0, 0])
    numbers = [graph.float32(0.9), graph.int32(-1), graph.int32(0)]  # threshold, detections, kernel
    numbers += [graph.float32(value) for value in (0.5, 1.0, 0.5)]  # IoU, sigma, threshold of soft suppression
    outputs = [graph.output(F32, (0,)), graph.output(F32, (0, 4)), graph.output(I32, (0,)), graph.output(I32, (0,))]
    graph.apply("BOX_WITH_NMS_LIMIT", [scores, rois, batches, *numbers], outputs)
    boxes = np.tile([0.0, 0, 10, 10], (2, 2))
    return make_case("no_boxes", graph, [np.full((2, 2), 0.1), boxes], [np.zeros(0), np.zeros((0, 4)), [], []])


@register
def gather_out_of_range() -> Case:
    """Return a GATHER that must fail, because there is no row 5."""
    graph = CaseGraph()
    inputs = [graph.input(F32, (3, 2)), graph.int32(0), graph.input(I32, (1,))]
    graph.apply("GATHER", inputs, [graph.output(F32, (1, 2))])
    return make_case("gather_out_of_range", graph, [np.ones((3, 2)), [5]], [np.zeros((1, 2))], expect_failure=True)
